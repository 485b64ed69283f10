package ingest

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/store"
)

// Messages is the part of a store that commands need.
type Messages interface {
	Insert(ctx context.Context, messages []postdate.Message) []store.Inserted
	Get(ctx context.Context, key postdate.Key) (postdate.Record, error)
	Replace(ctx context.Context, m postdate.Message, ifVersion uint64) (postdate.Record, error)
	Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled
}

// Config is what a Taker needs. Messages and Intake have no defaults.
type Config struct {
	Messages Messages
	Intake   api.Intake
	Now      func() postdate.Time
	// Scheduled is told of messages that became PENDING, to wake their owner.
	Scheduled func(bucket int, at postdate.Time)
	// Timeout bounds each call of the store; 30 s by default.
	Timeout time.Duration
	Log     *slog.Logger
	Metrics prometheus.Registerer // nil: none
}

// Taker carries out commands. It is safe for concurrent use.
type Taker struct {
	config  Config
	metrics *metrics
}

// NewTaker makes a Taker.
func NewTaker(c Config) (*Taker, error) {
	if c.Messages == nil || c.Intake.Buckets < 1 {
		return nil, postdate.E(postdate.KindInternal, "what takes schedules from brokers needs a store and its number of buckets")
	}
	if c.Intake.Tenant == "" {
		c.Intake.Tenant = postdate.DefaultTenant
	}
	if c.Intake.PayloadBytesMax == 0 {
		c.Intake.PayloadBytesMax = postdate.PayloadBytesMax
	}
	if c.Intake.CheckChannel == nil {
		c.Intake.CheckChannel = func(postdate.Channel) error { return nil }
	}
	if c.Now == nil {
		c.Now = func() postdate.Time { return postdate.WallOf(time.Now()) }
	}
	if c.Scheduled == nil {
		c.Scheduled = func(int, postdate.Time) {}
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	m, err := newMetrics(c.Metrics)
	return &Taker{config: c, metrics: m}, err
}

// CheckChannel says whether the node serves a channel.
func (t *Taker) CheckChannel(c postdate.Channel) error { return t.config.Intake.CheckChannel(c) }

// Outcome is what became of a command. The zero value is that nothing did yet.
type Outcome uint8

// The outcomes.
const (
	Again Outcome = iota // not now, or nobody knows: give the same Command again, after a while
	Done                 // durable: tell the broker
	Bad                  // it can never be done: put it aside, with Reason, then tell the broker
)

// Result is an outcome with a reason for all but Done.
type Result struct {
	Outcome Outcome
	Reason  string
}

// Take carries out commands, in their order where they are about the same id, and
// returns what became of each. Where something is to be taken Again, call it with
// all of the same commands: those that are through stay so. source names where they
// come from, for people.
func (t *Taker) Take(ctx context.Context, source string, commands []*Command) []Result {
	now := t.config.Now()
	for _, c := range commands {
		if c.decision == nil {
			d := Decide(&t.config.Intake, c, now, newID())
			c.decision = &d
		}
	}
	for rest := commands; len(rest) > 0; {
		run, open := nextRun(rest)
		rest = rest[len(run):]
		if !t.carryOut(ctx, source, open) {
			break // what follows may be about the same ids
		}
	}
	results := make([]Result, len(commands))
	for i, c := range commands {
		results[i] = c.result
		if c.result.Outcome == Again {
			t.metrics.retried.WithLabelValues(source).Inc()
		}
	}
	return results
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// nextRun is the longest beginning of commands that can travel together: all cancel,
// or none does, and no id stands twice. open are those of it that are not through.
func nextRun(commands []*Command) (run, open []*Command) {
	seen := map[postdate.Key]bool{}
	cancels := false
	for i, c := range commands {
		d := c.decision
		if c.result.Outcome != Again {
			continue
		}
		if d.Action != Refuse || d.Expired { // it is about an id
			isCancel := d.Action == Cancel
			if seen[d.Message.Key] || len(seen) > 0 && isCancel != cancels {
				return commands[:i], open
			}
			cancels, seen[d.Message.Key] = isCancel, true
		}
		open = append(open, c)
	}
	return commands, open
}

// carryOut does a run, and says whether all of it is through.
func (t *Taker) carryOut(ctx context.Context, source string, run []*Command) bool {
	var cancels, inserts []*Command
	for _, c := range run {
		switch c.decision.Action {
		case Cancel:
			cancels = append(cancels, c)
		case Refuse:
			t.refused(ctx, source, c)
		default:
			inserts = append(inserts, c)
		}
	}
	t.cancel(ctx, source, cancels)
	t.insert(ctx, source, inserts)
	for _, c := range run {
		if c.result.Outcome == Again {
			return false
		}
	}
	return true
}

func (t *Taker) finish(source string, c *Command, how string) {
	c.result = Result{Outcome: Done}
	t.metrics.taken.WithLabelValues(source, how).Inc()
}

func (t *Taker) bad(source string, c *Command, reason string) {
	c.result = Result{Outcome: Bad, Reason: reason}
	t.metrics.taken.WithLabelValues(source, howBad).Inc()
}

// again notes why a command is not through yet.
func (c *Command) again(err error) { c.result = Result{Outcome: Again, Reason: err.Error()} }

// refused is for what Decide refused: it is bad, but for a late repetition of what
// the store has.
func (t *Taker) refused(ctx context.Context, source string, c *Command) {
	if d := c.decision; d.Expired {
		ctx, cancel := context.WithTimeout(ctx, t.config.Timeout)
		defer cancel()
		r, err := t.config.Messages.Get(ctx, d.Message.Key)
		switch {
		case err == nil && r.Digest == d.Message.Digest:
			t.finish(source, c, howRepeated)
			return
		case err != nil && postdate.KindOf(err) != postdate.KindNotFound:
			c.again(err)
			return
		}
	}
	t.bad(source, c, c.decision.Reason)
}

// cancel withdraws messages. A record that is read again, after a crash, must not
// cancel what was scheduled behind it.
func (t *Taker) cancel(ctx context.Context, source string, commands []*Command) {
	ctx, stop := context.WithTimeout(ctx, t.config.Timeout)
	defer stop()
	var open []*Command
	var keys []postdate.Key
	for _, c := range commands {
		key := c.decision.Message.Key
		r, err := t.config.Messages.Get(ctx, key)
		switch {
		case err != nil && postdate.KindOf(err) == postdate.KindNotFound:
			t.bad(source, c, nothingThere)
		case err != nil:
			c.again(err)
		case supersedes(&r.Message, c.Place):
			t.finish(source, c, howRepeated)
		default:
			open, keys = append(open, c), append(keys, key)
		}
	}
	if len(open) == 0 {
		return
	}
	for i, r := range t.config.Messages.Cancel(ctx, keys, t.config.Now()) {
		switch kind := postdate.KindOf(r.Err); {
		case r.Err == nil && r.Changed:
			t.finish(source, open[i], howCancelled)
		case r.Err == nil:
			t.finish(source, open[i], howRepeated)
		case kind == postdate.KindNotFound:
			t.bad(source, open[i], nothingThere)
		case kind == postdate.KindTooLate:
			t.bad(source, open[i], "nothing was cancelled: "+tooLate(r.State))
		default:
			open[i].again(r.Err)
		}
	}
}

const nothingThere = "nothing was cancelled: there is no message with this id; it may never have been scheduled, or it is finished and its retention is over"

func tooLate(s postdate.State) string {
	if s.Status == postdate.Pending {
		return "delivery of the message may have begun"
	}
	return "the message is " + s.Status.String()
}

// insert makes messages. Those that found their id taken go on alone.
func (t *Taker) insert(ctx context.Context, source string, commands []*Command) {
	if len(commands) == 0 {
		return
	}
	messages := make([]postdate.Message, len(commands))
	for i, c := range commands {
		messages[i] = c.decision.Message
	}
	ctx, stop := context.WithTimeout(ctx, t.config.Timeout)
	defer stop()
	for i, r := range t.config.Messages.Insert(ctx, messages) {
		c := commands[i]
		for r = t.inserted(source, c, r); c.result.Outcome == Again && c.decision.Identity != Given && taken(r); {
			if t.recognised(ctx, source, c) {
				break
			}
			t.rename(c, r)
			r = t.inserted(source, c, t.config.Messages.Insert(ctx, []postdate.Message{c.decision.Message})[0])
		}
		if c.result.Outcome == Again && c.decision.Action == Upsert && postdate.KindOf(r.Err) == postdate.KindExists {
			t.replace(ctx, source, c)
		}
	}
}

// recognised looks whether the message that has a record's id came from that very
// record, and says whether the command is through or cannot go on now.
func (t *Taker) recognised(ctx context.Context, source string, c *Command) bool {
	if !c.Records {
		return false
	}
	switch old, err := t.config.Messages.Get(ctx, c.decision.Message.Key); {
	case err == nil && isFrom(&old.Message, c.Place):
		t.finish(source, c, howRepeated)
	case err != nil && postdate.KindOf(err) != postdate.KindNotFound:
		c.again(err)
	default:
		return false
	}
	return true
}

// taken says that another message has the id, or may be another one.
func taken(r store.Inserted) bool {
	return r.Err == nil || postdate.KindOf(r.Err) == postdate.KindExists
}

// inserted notes what became of an insert, where that is decided by it alone.
func (t *Taker) inserted(source string, c *Command, r store.Inserted) store.Inserted {
	d := c.decision
	switch kind := postdate.KindOf(r.Err); {
	case r.Err == nil && (r.Created || d.Identity != Borrowed || r.Status == postdate.Pending && r.ExecutionTime > t.config.Now()):
		if r.Status == postdate.Pending {
			t.config.Scheduled(d.Message.Bucket, r.ExecutionTime)
		}
		how := howRepeated
		if r.Created {
			how = howScheduled
		}
		t.finish(source, c, how)
	case r.Err == nil:
		// A message id that names a message that may have gone out: this may be a
		// repetition of that, or a new message of the same name.
	case kind == postdate.KindExists && d.Identity == Given && d.Action == Schedule:
		t.bad(source, c, "the schedule id is taken by a message with other content: choose another id")
	case kind == postdate.KindInvalid || kind == postdate.KindTooLarge:
		t.bad(source, c, r.Err.Error())
	default:
		c.again(r.Err)
	}
	return r
}

// rename gives a message whose id is taken another one. Where it may be the one
// that is there, or may have been renamed before, its delivery is to say so.
func (t *Taker) rename(c *Command, r store.Inserted) {
	d := *c.decision
	d.Message.MayRepeat = d.Message.MayRepeat || r.Err == nil || c.Redelivered || d.Identity == Placed
	if d.Identity == Borrowed && c.Position != "" {
		d.Message.Key, d.Identity = t.config.Intake.Key(c.Position), Placed
	} else {
		d.Message.Key, d.Identity = t.config.Intake.Key(newID()), Fresh
	}
	c.decision = &d
}

// replaceRoundsMax bounds how often a change is tried anew at once, because others
// changed the same message in between.
const replaceRoundsMax = 8

// replace puts a message in the place of the one that has its id.
func (t *Taker) replace(ctx context.Context, source string, c *Command) {
	m := c.decision.Message
	for range replaceRoundsMax {
		old, err := t.config.Messages.Get(ctx, m.Key)
		if postdate.KindOf(err) == postdate.KindNotFound && err != nil {
			r := t.inserted(source, c, t.config.Messages.Insert(ctx, []postdate.Message{m})[0])
			if r.Err == nil || postdate.KindOf(r.Err) != postdate.KindExists {
				return
			}
			continue
		}
		if err != nil {
			c.again(err)
			return
		}
		if old.Digest == m.Digest || supersedes(&old.Message, c.Place) {
			t.finish(source, c, howRepeated)
			return
		}
		m.CreatedAt = old.CreatedAt
		r, err := t.config.Messages.Replace(ctx, m, old.Version)
		switch kind := postdate.KindOf(err); {
		case err == nil:
			t.config.Scheduled(r.Bucket, r.ExecutionTime)
			t.finish(source, c, howReplaced)
			return
		case kind == postdate.KindTooLate:
			t.bad(source, c, "nothing was replaced: "+tooLate(r.State))
			return
		case kind != postdate.KindConflict && kind != postdate.KindNotFound:
			c.again(err)
			return
		}
	}
	c.again(errors.New("others keep changing the message"))
}

// SetLag notes how many messages wait in a source.
func (t *Taker) SetLag(source string, messages int64) {
	t.metrics.lag.WithLabelValues(source).Set(float64(messages))
}
