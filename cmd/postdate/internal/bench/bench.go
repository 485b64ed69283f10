// Package bench measures a running Postdate server from outside: how fast it accepts schedules,
// how fast it drains messages that are all due at one instant, and how late messages arrive
// under a steady load, with and without a large backlog.
//
// It trusts nothing that the server says about lateness: a message's lateness is the time from
// its due time to its receipt here, by this machine's clock, and every acknowledged message is
// counted until it arrives. At the end it cancels what it leaves pending, unless
// Config.Disposable.
package bench

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"strings"
	"time"
)

// Config says what to measure. Start from [DefaultConfig].
type Config struct {
	Server     string        // the server's URL
	APIKey     string        // that it asks for; "": none
	TLS        *tls.Config   // for https; nil: the system's authorities
	Channel    string        // inbox:NAME, or rabbitmq:QUEUE
	RabbitMQ   string        // the broker's URL, for a rabbitmq channel
	Callers    int           // concurrent requests
	Messages   int           // in each phase with a fixed number
	Batch      int           // messages per batch request
	Rate       int           // of the steady load, in messages per second
	Duration   time.Duration // of the steady load
	Every      time.Duration // how often the steady load gets an additional row; 0: never
	Backlog    []int         // measure again above that many far-off messages, one size after the other
	Rest       time.Duration // pause after a backlog is loaded, in which the store compacts
	Cancel     int           // how many messages to cancel one by one; 0: no such phase
	Payload    int           // bytes
	Disposable bool          // the server's store will be thrown away: leave messages pending

	// Node measures the server's process; nil: not measured.
	Node func() (Usage, error)

	// Progress is called about ten times a second, from one goroutine at a time. It may be nil.
	Progress func(phase string, done, total int)
}

// DefaultConfig is the configuration of "postdate bench" without flags.
func DefaultConfig() Config {
	return Config{
		Channel: "inbox:bench", Callers: 64, Messages: 100_000, Batch: 500,
		Rate: 2000, Duration: 30 * time.Second, Payload: 256,
	}
}

// Validate says what is wrong with c, and names the flag.
func (c Config) Validate() error {
	for _, n := range []struct {
		flag       string
		value, min int
		max        int
	}{
		{"callers", c.Callers, 1, 10_000},
		{"messages", c.Messages, 1, 100_000_000},
		{"batch", c.Batch, 1, 10_000},
		{"rate", c.Rate, 1, 1_000_000},
		{"cancel", c.Cancel, 0, c.Messages},
		{"payload", c.Payload, 2, 256 << 10},
	} {
		if n.value < n.min || n.value > n.max {
			return fmt.Errorf("--%s is %d: it must be between %d and %d", n.flag, n.value, n.min, n.max)
		}
	}
	size := 0
	for _, backlog := range c.Backlog {
		if backlog <= size || backlog > 1_000_000_000 {
			return fmt.Errorf("--backlog is %v: each size must be greater than the one before, "+
				"and at most 1,000,000,000", c.Backlog)
		}
		size = backlog
	}
	if c.Every < 0 || c.Every > 0 && c.Every < time.Second {
		return fmt.Errorf("--every is %v: it must be at least 1s", c.Every)
	}
	if c.Duration < time.Second || c.Duration > 24*time.Hour {
		return fmt.Errorf("--duration is %v: it must be between 1s and 24h", c.Duration)
	}
	broker, target, _ := strings.Cut(c.Channel, ":")
	switch {
	case broker == "inbox" && target != "":
		return nil
	case broker != "rabbitmq" || target == "" || strings.Contains(target, "/"):
		return fmt.Errorf("--channel is %q: it must be inbox:NAME or rabbitmq:QUEUE", c.Channel)
	case c.RabbitMQ == "":
		return fmt.Errorf("--channel %s needs --rabbitmq, to consume the queue", c.Channel)
	}
	return nil
}

// run is one benchmark in progress.
type run struct {
	Config
	name    string // unique to the run; begins every id
	load    *loader
	tracker *tracker
	report  Report
	before  Usage // at the time of the last row
}

// Run measures, and returns when all phases are done or ctx ends. An error means that it could
// not measure; the server's faults are in the report.
func Run(ctx context.Context, c Config) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	load, err := newLoader(c)
	if err != nil {
		return nil, err
	}
	r := &run{Config: c, name: "bench-" + strings.ToLower(rand.Text()[:8]), load: load, tracker: &tracker{}}
	r.report.Channel = c.Channel

	consumer, err := openConsumer(ctx, c, load)
	if err != nil {
		return nil, err
	}
	defer consumer.close()
	ctx, stop := context.WithCancelCause(ctx)
	consumed := make(chan struct{})
	go func() {
		defer close(consumed)
		if err := consumer.consume(ctx, r.tracker.receive); err != nil {
			stop(err) // without a consumer nothing can be measured
		}
	}()
	err = r.phases(ctx)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	stop(nil)
	<-consumed
	r.report.Retries = load.retries.Load()
	return &r.report, err
}

// phases runs the phases in order.
func (r *run) phases(ctx context.Context) error {
	singles := r.group("single", r.Messages)
	seconds, err := r.schedule(ctx, fmt.Sprintf("schedule, %d callers", r.Callers), singles, farOff)
	if err != nil {
		return err
	}
	if r.Cancel > 0 {
		if err := r.cancelOneByOne(ctx, singles); err != nil {
			return err
		}
	}
	if err := r.drain(ctx, seconds); err != nil {
		return err
	}
	if err := r.steady(ctx, "steady load", "steady"); err != nil {
		return err
	}
	pending := []*group{singles}
	loaded := 0
	for i, size := range r.Backlog {
		groups, err := r.above(ctx, fmt.Sprint(i), size, size-loaded)
		if err != nil {
			return err
		}
		pending, loaded = append(pending, groups...), size
	}
	if r.Disposable {
		return nil
	}
	return r.cleanUp(ctx, pending)
}

// above loads more far-off messages, up to size in total, and measures again. It returns what
// it leaves pending. Ids end with suffix; it is short, because longer ids affect the result.
func (r *run) above(ctx context.Context, suffix string, size, more int) ([]*group, error) {
	backlog := r.group("backlog"+suffix, more)
	if err := r.scheduleBatches(ctx, fmt.Sprintf("load a backlog of %d", size), backlog, farOff); err != nil {
		return nil, err
	}
	if err := pause(ctx, r.Rest); err != nil {
		return nil, err
	}
	singles := r.group("above"+suffix, r.Messages)
	if _, err := r.schedule(ctx, fmt.Sprintf("schedule, %d callers, above %d",
		r.Callers, size), singles, farOff); err != nil {
		return nil, err
	}
	batches := r.group("batch"+suffix, r.Messages)
	if err := r.scheduleBatches(ctx, fmt.Sprintf("schedule, batches of %d, above %d",
		r.Batch, size), batches, farOff); err != nil {
		return nil, err
	}
	err := r.steady(ctx, fmt.Sprintf("steady load above %d", size), "heavy"+suffix)
	return []*group{backlog, singles, batches}, err
}

// farOff is the due time of messages that only fill the store: in one to two months.
func farOff(i int) time.Time {
	month := 30 * 24 * time.Hour
	return time.Now().Add(month + scatter(i, month))
}

// scatter returns a duration in [0, within) that looks random and is the same for the same i
// (the finalizer of MurmurHash3, by Austin Appleby).
func scatter(i int, within time.Duration) time.Duration {
	h := uint64(i) + 0x9e3779b97f4a7c15
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return time.Duration(h % uint64(within))
}

// pause waits for d, or for the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
