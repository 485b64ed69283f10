package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/postdate/postdate/node"
)

// stopTimeout bounds an orderly stop. What is then still in flight is in doubt, as after a
// crash; nothing is lost.
const stopTimeout = 30 * time.Second

// readyLine is the first line on standard output.
type readyLine struct {
	Msg     string `json:"msg"` // "ready"
	HTTP    string `json:"http"`
	Node    string `json:"node"`
	Version string `json:"version"`
}

func newServe(p process) *cobra.Command {
	n := &nodeFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long: `Run a node. When it is ready to serve, it says so in one line of JSON on standard
output; everything else is logged to standard error. On SIGTERM or an interrupt it
finishes what is in flight and exits with 0; a second signal, a second later or more,
ends it at once.

` + environmentHelp + `
Every flag is also a key of the file that --config names, which goes after both.`,
		Example: `  postdate serve
  postdate serve --http 127.0.0.1:8081 --store pebble:/var/lib/postdate
  POSTDATE_RABBITMQ=amqp://user:password@rabbit:5672/ postdate serve`,
		Args: cobra.NoArgs,
	}
	n.register(cmd.Flags())
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		if err := resolve(cmd.Flags(), p.environ); err != nil {
			return err
		}
		config := n.finish(p.stderr)
		for _, u := range unknownEnvironment(cmd.Flags(), p.environ) {
			config.Log.Warn("unknown environment variable"+didYouMean("", u[1]), slog.String("name", u[0]))
		}
		if err := config.Validate(); err != nil {
			return usagef("%v", secretsOf(config).redactError(err))
		}
		return secretsOf(config).redactError(serve(p.stdout, config))
	})
	return cmd
}

// secondSignalMin is how long after the first signal another one is meant as a second: GNU timeout
// and service managers that signal a group of processes may send one signal twice.
const secondSignalMin = time.Second

// endsAtOnce says whether a signal after the first one ends the node without an orderly stop.
func endsAtOnce(first, later time.Time) bool { return later.Sub(first) >= secondSignalMin }

// serve runs a node until a signal or a fatal error.
func serve(stdout io.Writer, config node.Config) error {
	ballast := node.HeapBallast()
	defer runtime.KeepAlive(ballast)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stopping := make(chan struct{})
	go func() {
		<-signals
		first := time.Now()
		close(stopping)
		for range signals {
			if endsAtOnce(first, time.Now()) {
				break
			}
		}
		config.Log.Warn("a second signal came: this node ends at once, and leaves in doubt what is in flight")
		os.Exit(exitFailed)
	}()
	starting := make(chan struct{})
	go func() { // a signal during the start aborts it
		select {
		case <-stopping:
			cancel()
		case <-starting:
		}
	}()
	n, err := node.Start(ctx, config)
	close(starting)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	ready, err := json.Marshal(readyLine{Msg: "ready", HTTP: n.Addr(), Node: config.NodeID, Version: config.Version})
	if err == nil {
		_, err = fmt.Fprintf(stdout, "%s\n", ready)
	}
	if err != nil {
		return fmt.Errorf("cannot say on standard output that the node is ready: %w", err)
	}
	select {
	case <-stopping:
	case <-n.Done():
	}
	failed := n.Err()
	stopCtx, done := context.WithTimeout(context.Background(), stopTimeout)
	defer done()
	if err := n.Stop(stopCtx); failed == nil && err != nil {
		failed = fmt.Errorf("the node did not stop in order: %w", err)
	}
	return failed
}
