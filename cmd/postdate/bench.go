package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/postdate/postdate/cmd/postdate/internal/bench"
)

// benchCommand is "postdate bench".
type benchCommand struct {
	process   process
	config    bench.Config
	to        connection
	store     string
	cache     size
	retention time.Duration
	restart   bool
	json      bool
}

func newBench(p process) *cobra.Command {
	b := &benchCommand{process: p, config: bench.DefaultConfig()}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure throughput and lateness",
		Long: `Measure a server: schedules per second, how fast it drains what is due at one
instant, and how late messages arrive under a steady load, with everything counted
that is early, lost or there twice. Without --server it starts a node of its own,
as a separate process on a temporary store, and throws both away.

With --backlog it loads so many far-off messages and then measures schedules and
steady load again, so that the backlog's effect shows in one table. With several
sizes it does so above each. What it leaves pending on a --server it cancels at the
end. A rabbitmq queue is consumed whole.

It exits with 1 if something was early, lost, or there twice without a mark.`,
		Example: `  postdate bench
  postdate bench --messages 20000 --duration 10s --backlog 1000000,10000000
  postdate bench --messages 1000 --rate 5000 --duration 1h --every 1m --retention 1m
  postdate bench --channel rabbitmq:bench --rabbitmq amqp://guest:guest@127.0.0.1:5672/`,
		Args: cobra.NoArgs,
	}
	c, f := &b.config, cmd.Flags()
	b.to.register(f, "", "measure this running node (or POSTDATE_SERVER; default: a node of its own)")
	f.StringVar(&b.store, "store", "", "the own node's store (default: a temporary one)")
	f.Var(&b.cache, "store-cache", "the own node's cache (default: as for serve)")
	f.DurationVar(&b.retention, "retention", 0, "the own node's retention, of inboxes too (default: as for serve)")
	f.BoolVar(&b.restart, "restart", false, "at the end kill the own node and say how long it takes to be ready again")
	f.StringVar(&c.RabbitMQ, "rabbitmq", "", "RabbitMQ's URL, for a rabbitmq channel (or POSTDATE_RABBITMQ)")
	f.StringVar(&c.Channel, "channel", c.Channel, "where messages go: inbox:NAME or rabbitmq:QUEUE")
	f.IntVar(&c.Callers, "callers", c.Callers, "concurrent requests")
	f.IntVar(&c.Messages, "messages", c.Messages, "messages of each phase but the steady load")
	f.IntVar(&c.Batch, "batch", c.Batch, "messages of one batch request")
	f.IntVar(&c.Cancel, "cancel", c.Cancel, "cancel so many of them, one by one")
	f.IntVar(&c.Rate, "rate", c.Rate, "the steady load, in messages per second, due 1 to 10 s ahead")
	f.DurationVar(&c.Duration, "duration", c.Duration, "how long the steady load lasts")
	f.DurationVar(&c.Every, "every", 0, "so often a row for the steady load besides")
	f.IntSliceVar(&c.Backlog, "backlog", c.Backlog,
		"measure again above so many far-off messages; 1000000,10000000: above each")
	f.DurationVar(&c.Rest, "rest", c.Rest, "pause after the backlog is loaded, in which the store merges it")
	f.IntVar(&c.Payload, "payload", c.Payload, "bytes of one payload")
	f.BoolVar(&b.json, "json", false, "print the figures as JSON")
	for _, own := range []string{"store", "store-cache", "retention", "restart"} {
		cmd.MarkFlagsMutuallyExclusive("server", own)
	}
	cmd.RunE = action(b.run)
	return cmd
}

func (b *benchCommand) run(cmd *cobra.Command, _ []string) error {
	if err := resolve(cmd.Flags(), b.environ(cmd)); err != nil {
		return err
	}
	if err := b.config.Validate(); err != nil {
		return usagef("%v", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := b.measure(ctx, cmd.ErrOrStderr())
	if report == nil || len(report.Rows) == 0 {
		return secrets{urls: []string{b.config.RabbitMQ}}.redactError(err)
	}
	return secrets{urls: []string{b.config.RabbitMQ}}.redactError(errors.Join(err, b.print(cmd.OutOrStdout(), report),
		report.Verdict()))
}

// environ returns the variables that bench reads: not the store, which a running node may use,
// and no server if bench was asked to start a node.
func (b *benchCommand) environ(cmd *cobra.Command) []string {
	if cmd.Flags().Changed("store") {
		return b.process.only("rabbitmq")
	}
	return b.process.only(append([]string{"rabbitmq"}, connectionFlags...)...)
}

// measure runs the benchmark, on a node of its own if no server is named. If it fails, it may
// return the report as far as it got.
func (b *benchCommand) measure(ctx context.Context, stderr io.Writer) (report *bench.Report, err error) {
	config := b.config
	config.Progress = progress(stderr)
	if b.to.server != "" {
		c, secure, err := b.to.client()
		if err != nil {
			return nil, err
		}
		if err := c.Health(ctx); err != nil {
			return nil, explain(err)
		}
		config.Server, config.APIKey, config.TLS = c.Server(), b.to.apiKey, secure
		return bench.Run(ctx, config)
	}
	store := b.store
	if store == "" {
		folder, err := os.MkdirTemp("", "postdate-bench-")
		if err != nil {
			return nil, fmt.Errorf("cannot make a temporary folder: %w", err)
		}
		defer os.RemoveAll(folder)
		store = "pebble:" + filepath.Join(folder, "data")
		config.Disposable = true
	}
	own, err := startOwnNode(ctx, b.node(store))
	if err != nil {
		return nil, err
	}
	config.Server = own.url
	config.Node = func() (bench.Usage, error) { return usage(own.cmd.Process.Pid, store) }
	report, err = bench.Run(ctx, config)
	if err == nil && b.restart {
		own, err = b.again(ctx, own, store, report)
		if err != nil {
			return report, err
		}
	}
	memory, stopErr := own.stop()
	if report != nil {
		report.NodeMemoryMaxBytes = max(report.NodeMemoryMaxBytes, memory)
	}
	return report, errors.Join(err, stopErr)
}

// again kills the own node, restarts it on the same store, and records how long that took.
func (b *benchCommand) again(ctx context.Context, own *ownNode, store string, report *bench.Report) (*ownNode, error) {
	report.NodeMemoryMaxBytes = own.kill()
	begun := time.Now()
	own, err := startOwnNode(ctx, b.node(store))
	if err != nil {
		return nil, err
	}
	row := bench.Row{Phase: "ready again after kill -9", Times: "call", Seconds: time.Since(begun).Seconds()}
	row.MaxMs = 1000 * row.Seconds
	if now, err := usage(own.cmd.Process.Pid, store); err == nil {
		row.Node = &now
	}
	report.Rows = append(report.Rows, row)
	return own, nil
}

// node says how to start the own node.
func (b *benchCommand) node(store string) ownNodeConfig {
	c := ownNodeConfig{store: store, rabbitMQ: b.config.RabbitMQ}
	if b.cache > 0 {
		c.flags = append(c.flags, "--store-cache", b.cache.String())
	}
	if b.retention > 0 {
		c.flags = append(c.flags, "--retention", b.retention.String(), "--inbox-retention", b.retention.String())
	}
	return c
}

func (b *benchCommand) print(w io.Writer, report *bench.Report) error {
	if !b.json {
		return report.Print(w)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(report)
}

// progress draws a bar for each phase if stderr is a terminal.
func progress(stderr io.Writer) func(phase string, done, total int) {
	f, ok := stderr.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	var bar *progressbar.ProgressBar
	current := ""
	return func(phase string, done, total int) {
		if phase != current {
			current = phase
			bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(stderr),
				progressbar.OptionSetDescription(phase), progressbar.OptionShowCount(),
				progressbar.OptionClearOnFinish())
		}
		_ = bar.Set(done) // failing to draw a bar stops nothing
	}
}
