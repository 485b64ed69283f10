package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/node"
)

const (
	demoMessages  = 10
	demoCancelled = 6 // index in order of time: the seventh
	demoFirst     = time.Second
	demoLast      = 5 * time.Second
	// demoPatience is how long the demo waits after the last message is due.
	demoPatience = 30 * time.Second
	// demoGrace is how long it then watches for messages that must not come.
	demoGrace = 300 * time.Millisecond
)

func newDemo(p process) *cobra.Command {
	var rabbitMQ string
	var console bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See the whole thing at work, in six seconds",
		Long: `Start a node on a temporary embedded store, schedule ten messages one to five
seconds ahead over HTTP, cancel one, and print the other nine as they arrive, each
with how late it was: the time from its due time to its receipt here. With
--rabbitmq they arrive on a queue of that broker, which is removed at the end.
It exits with 1 if one is missing or early, or if the cancelled one arrives.

With --console, start the node and keep it busy until Ctrl-C, and print where
its console is, to look at in a browser.`,
		Example: `  postdate demo
  postdate demo --console
  postdate demo --rabbitmq amqp://guest:guest@127.0.0.1:5672/`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&rabbitMQ, "rabbitmq", "", "use a queue of this RabbitMQ (or POSTDATE_RABBITMQ)")
	cmd.Flags().BoolVar(&console, "console", false, "keep the node and its console busy until Ctrl-C")
	cmd.MarkFlagsMutuallyExclusive("rabbitmq", "console")
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		if err := resolve(cmd.Flags(), p.environ); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return secrets{urls: []string{rabbitMQ}}.redactError(demo(ctx, cmd, rabbitMQ, console))
	})
	return cmd
}

// demo starts a node and a receiver, runs the show, and removes both.
func demo(ctx context.Context, cmd *cobra.Command, rabbitMQ string, console bool) (err error) {
	folder, err := os.MkdirTemp("", "postdate-demo-")
	if err != nil {
		return fmt.Errorf("cannot make a temporary folder: %w", err)
	}
	defer os.RemoveAll(folder)

	config := node.DefaultConfig()
	config.HTTP = "127.0.0.1:0"
	config.Store = "pebble:" + filepath.Join(folder, "data")
	config.RabbitMQ = rabbitMQ
	config.Webhook.Allow = []string{"127.0.0.1"} // the demo's own receiver
	config.Version = buildVersion()
	config.Log = newLog(secrets{urls: []string{rabbitMQ}}.redact(cmd.ErrOrStderr()), "warn", "text")
	if err := config.Validate(); err != nil {
		return usagef("%v", secrets{urls: []string{rabbitMQ}}.redactError(err))
	}
	n, err := node.Start(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		stopCtx, done := context.WithTimeout(context.Background(), stopTimeout)
		defer done()
		if stopErr := n.Stop(stopCtx); err == nil && stopErr != nil {
			err = fmt.Errorf("the node did not stop in order: %w", stopErr)
		}
	}()
	c, err := connect(n.Addr(), "", "", nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "\nPostdate demo: one node at %s, on an embedded store\n\n", c.Server())
	if console {
		return (&liveDemo{out: cmd.OutOrStdout(), client: c}).run(ctx)
	}
	receiver, err := newReceiver(c, rabbitMQ)
	if err != nil {
		return err
	}
	defer receiver.close()
	show := &demoShow{out: cmd.OutOrStdout(), client: c, channel: receiver.channel()}
	return show.run(ctx, receiver)
}

// demoShow is one run of the demo.
type demoShow struct {
	out     io.Writer
	client  *client.Client
	channel string
	due     map[string]time.Time // by schedule id
	lates   []time.Duration
	wrong   []string // broken promises
}

func (s *demoShow) run(ctx context.Context, r receiver) error {
	if err := s.schedule(ctx); err != nil {
		return err
	}
	cancelled := demoID(demoCancelled)
	if err := s.client.Cancel(ctx, cancelled); err != nil {
		return fmt.Errorf("cannot cancel %s: %w", cancelled, err)
	}
	fmt.Fprintf(s.out, "  cancelled  %s: the server guarantees that it never arrives\n\n", cancelled)
	fmt.Fprintf(s.out, "  %-9s  %-12s  %-12s  %s\n", "message", "due", "arrived", "late")
	if err := s.watch(ctx, r); err != nil {
		return err
	}
	return s.summary()
}

func demoID(i int) string { return fmt.Sprintf("demo-%02d", i+1) }

// schedule schedules all messages, evenly spread.
func (s *demoShow) schedule(ctx context.Context) error {
	s.due = make(map[string]time.Time)
	start := time.Now().Add(demoFirst)
	for i := range demoMessages {
		at := postdate.TimeOf(start.Add(time.Duration(i) * (demoLast - demoFirst) / (demoMessages - 1)))
		m := client.Message{ScheduleID: demoID(i), Channel: s.channel, ExecutionTime: at.Std(),
			Payload: fmt.Appendf(nil, `{"number":%d}`, i+1)}
		if _, err := s.client.Schedule(ctx, m); err != nil {
			return fmt.Errorf("cannot schedule %s: %w", demoID(i), err)
		}
		s.due[demoID(i)] = at.Std()
	}
	fmt.Fprintf(s.out, "  scheduled  %d messages for %s, due in %v to %v\n",
		demoMessages, s.channel, demoFirst, demoLast)
	return nil
}

// watch prints what arrives, until nothing more is expected.
func (s *demoShow) watch(ctx context.Context, r receiver) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	arrivals := make(chan arrival)
	failed := make(chan error, 1)
	go func() { failed <- r.receive(ctx, arrivals) }()
	seen := make(map[string]bool)
	deadline := time.NewTimer(demoLast + demoPatience)
	defer deadline.Stop()
	for {
		select {
		case a := <-arrivals:
			s.arrived(a, seen)
			if len(s.lates) == demoMessages-1 {
				deadline.Reset(demoGrace)
			}
		case err := <-failed:
			if err == nil {
				err = errors.New("interrupted")
			}
			return err
		case <-deadline.C:
			for i := range demoMessages {
				if id := demoID(i); i != demoCancelled && !seen[id] {
					s.wrong = append(s.wrong, id+" did not arrive")
				}
			}
			return nil
		}
	}
}

func (s *demoShow) arrived(a arrival, seen map[string]bool) {
	due, known := s.due[a.id]
	if !known {
		return // it belongs to another run
	}
	late := a.at.Sub(due)
	fmt.Fprintf(s.out, "  %-9s  %-12s  %-12s  %.1f ms\n", a.id,
		due.Local().Format("15:04:05.000"), a.at.Format("15:04:05.000"), milliseconds(late))
	switch {
	case a.id == demoID(demoCancelled):
		s.wrong = append(s.wrong, a.id+" was cancelled and arrived")
	case seen[a.id]:
		s.wrong = append(s.wrong, a.id+" arrived twice")
	case late < 0:
		s.wrong = append(s.wrong, a.id+" was early")
	}
	if !seen[a.id] {
		seen[a.id] = true
		s.lates = append(s.lates, late)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (s *demoShow) summary() error {
	for _, w := range s.wrong {
		fmt.Fprintf(s.out, "  WRONG: %s\n", w)
	}
	if len(s.wrong) > 0 {
		return fmt.Errorf("the demo did not go as promised: %s", s.wrong[0])
	}
	slices.Sort(s.lates)
	fmt.Fprintf(s.out, `
  All %d arrived, none early, none twice, and the cancelled one did not.
  Late by %.1f ms in the median, by %.1f ms at most.

What to try next ("make build" makes the command, as bin/postdate):
  postdate serve                                          a node of your own, in this folder
  postdate send --in 5s --channel inbox:test --data hi    schedule a message, in another terminal
  postdate tail inbox:test                                see it arrive
  postdate bench                                          measure this machine
  postdate demo --console                                 see it in a browser
`, len(s.lates), milliseconds(s.lates[len(s.lates)/2]), milliseconds(s.lates[len(s.lates)-1]))
	return nil
}
