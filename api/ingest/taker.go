package ingest

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/internal/tracing"
	"github.com/postdate/postdate/recurrence"
	"github.com/postdate/postdate/store"
)

// Messages is the part of a store that commands need.
type Messages interface {
	Get(ctx context.Context, key postdate.Key) (postdate.Record, error)
	api.TaskMessages
}

// Config is what a Taker needs. Messages and Intake have no defaults.
type Config struct {
	Messages Messages
	Intake   api.Intake
	Now      func() postdate.Time
	// Passed is as [api.Config] has it. Default: Now.
	Passed func() postdate.Time
	// Tasks: the commands are task definitions.
	Tasks bool
	// Etf1: the commands are records of etf1/kafka-message-scheduler.
	Etf1 bool
	// Retention is how long the store keeps finished messages. Default: [postdate.RetentionDefault].
	Retention time.Duration
	// Scheduled is called for each message that becomes PENDING, to wake its owner.
	Scheduled func(bucket int, at postdate.Time)
	// Timeout bounds each command's or batch's work on the store. Default: 30 s.
	Timeout time.Duration
	Log     *slog.Logger
	Source  string   // queue or topic, for the metrics, like rabbitmq:orders
	Metrics *Metrics // nil: none
	// Tracer makes a span of each command that is sampled. Default: none.
	Tracer *tracing.Tracer
}

// Taker carries out the commands of one source. It is safe for concurrent use.
type Taker struct {
	config  Config
	metrics *ofSource
}

// NewTaker makes a Taker.
func NewTaker(c Config) (*Taker, error) {
	if c.Messages == nil || c.Intake.Buckets < 1 {
		return nil, postdate.E(postdate.KindInternal,
			"what takes schedules from brokers needs a store and its number of buckets")
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
	if c.Passed == nil {
		c.Passed = c.Now
	}
	if c.Scheduled == nil {
		c.Scheduled = func(int, postdate.Time) {}
	}
	if c.Retention == 0 {
		c.Retention = postdate.RetentionDefault
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	return &Taker{config: c, metrics: c.Metrics.of(c.Intake.Tenant, c.Source)}, nil
}

// CheckChannel says whether the node serves a channel.
func (t *Taker) CheckChannel(c postdate.Channel) error { return t.config.Intake.CheckChannel(c) }

// Outcome is the state of a command. The zero value means that it is not done yet.
type Outcome uint8

// The outcomes.
const (
	Again Outcome = iota // not done, or unknown: pass the same Command again after a while
	Done                 // durable: acknowledge it to the broker
	Bad                  // it can never be done: put it aside with Reason, then acknowledge it
)

// Result is an outcome and, unless it is Done, the reason.
type Result struct {
	Outcome Outcome
	Reason  string
}

// Take carries out commands and returns the result of each. Commands about the same id
// take effect in their order. If an outcome is Again, call Take with all of the same
// commands again: those that are Done or Bad stay so.
func (t *Taker) Take(ctx context.Context, commands []*Command) []Result {
	now := t.config.Now()
	for _, c := range commands {
		if c.decision == nil {
			d := t.decide(c, now)
			c.decision = &d
			if t.startSpan(c); d.Action == Pass {
				t.finish(c, howRepeated)
			}
		}
	}
	for rest := commands; len(rest) > 0; {
		run, open := nextRun(rest)
		rest = rest[len(run):]
		if !t.carryOut(ctx, open) {
			break // later commands may be about the same ids
		}
	}
	results := make([]Result, len(commands))
	for i, c := range commands {
		results[i] = c.result
		if c.result.Outcome == Again {
			t.metrics.retried.Inc()
		}
	}
	return results
}

func (t *Taker) decide(c *Command, now postdate.Time) Decision {
	switch {
	case t.config.Tasks:
		return decideTask(&t.config.Intake, c, now)
	case t.config.Etf1:
		return decideEtf1(&t.config.Intake, c, now, t.config.Retention)
	}
	return Decide(&t.config.Intake, c, now, newID())
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// nextRun returns the longest prefix of commands that can go to the store together: all
// of them cancel or none does, and no id occurs twice. open are those still to be done.
func nextRun(commands []*Command) (run, open []*Command) {
	seen := map[postdate.Key]bool{}
	cancels := false
	for i, c := range commands {
		d := c.decision
		if c.result.Outcome != Again {
			continue
		}
		if d.Action != Refuse || d.Expired || d.compacted { // it is about an id
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

// carryOut carries out a run, and says whether every command of it is Done or Bad.
func (t *Taker) carryOut(ctx context.Context, run []*Command) bool {
	var cancels, inserts []*Command
	for _, c := range run {
		switch c.decision.Action {
		case Cancel:
			cancels = append(cancels, c)
		case Refuse:
			t.refused(ctx, c)
		case Define:
			t.define(ctx, c)
		default:
			inserts = append(inserts, c)
		}
	}
	t.cancel(ctx, cancels)
	t.insert(ctx, inserts)
	for _, c := range run {
		if c.result.Outcome == Again {
			return false
		}
	}
	return true
}

func (t *Taker) finish(c *Command, how string) {
	c.result = Result{Outcome: Done}
	t.endSpan(c, how, "")
	t.metrics.taken[how].Inc()
}

func (t *Taker) bad(c *Command, reason string) {
	c.result = Result{Outcome: Bad, Reason: reason}
	t.endSpan(c, howBad, reason)
	t.metrics.taken[howBad].Inc()
}

// again records why a command is not done yet.
func (c *Command) again(err error) { c.result = Result{Outcome: Again, Reason: err.Error()} }

// refused handles a command that Decide refused. It is bad, unless it is a late
// repetition of a message that the store has.
func (t *Taker) refused(ctx context.Context, c *Command) {
	if d := c.decision; d.Expired || d.compacted {
		ctx, cancel := context.WithTimeout(ctx, t.config.Timeout)
		defer cancel()
		r, err := t.config.Messages.Get(ctx, d.Message.Key)
		switch {
		case err == nil && (r.Digest == d.Message.Digest || d.compacted && outdated(c, &r.Message)):
			t.finish(c, howRepeated)
			return
		case err == nil && d.compacted && !t.withdraw(ctx, c, &r):
			return
		case err != nil && postdate.KindOf(err) != postdate.KindNotFound:
			c.again(err)
			return
		}
	}
	t.bad(c, c.decision.Reason)
}

// cancel cancels messages. A record that is read again, as after a crash, must not
// cancel a message that a later record scheduled.
func (t *Taker) cancel(ctx context.Context, commands []*Command) {
	ctx, stop := context.WithTimeout(ctx, t.config.Timeout)
	defer stop()
	var open []*Command
	var keys []postdate.Key
	for _, c := range commands {
		key := c.decision.Message.Key
		r, err := t.config.Messages.Get(ctx, key)
		switch {
		case err != nil && postdate.KindOf(err) == postdate.KindNotFound:
			t.vain(c, nothingThere)
		case err != nil:
			c.again(err)
		case outdated(c, &r.Message) || !isOf(&r.Message, c.decision.receipt):
			t.finish(c, howRepeated)
		default:
			open, keys = append(open, c), append(keys, key)
		}
	}
	if len(open) == 0 {
		return
	}
	for i, r := range api.Cancel(ctx, t.config.Messages, keys, t.config.Now()) {
		switch kind := postdate.KindOf(r.Err); {
		case r.Err == nil && r.Changed:
			t.finish(open[i], howCancelled)
		case r.Err == nil:
			t.finish(open[i], howRepeated)
		case kind == postdate.KindNotFound:
			t.vain(open[i], nothingThere)
		case kind == postdate.KindTooLate && open[i].decision.compacted && r.State.Status.Final():
			t.finish(open[i], howRepeated)
		case kind == postdate.KindTooLate:
			reason := "nothing was cancelled: " + tooLate(r.State)
			if r.State.Occurrence != 0 && r.State.Status != postdate.Delivered {
				reason = r.Err.Error() // the series ends all the same
			}
			t.bad(open[i], reason)
		default:
			open[i].again(r.Err)
		}
	}
}

// vain finishes a cancel of what is not there any more. A compacted topic keeps those of what was delivered.
func (t *Taker) vain(c *Command, reason string) {
	if c.decision.compacted {
		t.finish(c, howRepeated)
	} else {
		t.bad(c, reason)
	}
}

const nothingThere = "nothing was cancelled: there is no message with this id; " +
	"it may never have been scheduled, or it is finished and its retention is over"

func tooLate(s postdate.State) string {
	if s.Status == postdate.Pending {
		return "delivery of the message may have begun"
	}
	return "the message is " + s.Status.String()
}

// insert creates messages in one call. Those whose id is taken continue one by one.
func (t *Taker) insert(ctx context.Context, commands []*Command) {
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
		for r = t.inserted(c, r); c.result.Outcome == Again && c.decision.Identity != Given && taken(r); {
			if t.recognised(ctx, c) {
				break
			}
			t.rename(c, r)
			r = t.inserted(c, t.config.Messages.Insert(ctx, []postdate.Message{c.decision.Message})[0])
		}
		if c.result.Outcome == Again && c.decision.Action == Upsert && taken(r) {
			t.replace(ctx, c)
		}
	}
}

// recognised checks whether the stored message with the command's id came from the same
// record, and if so finishes the command. It returns false if the command needs another id.
func (t *Taker) recognised(ctx context.Context, c *Command) bool {
	if !c.Records {
		return false
	}
	switch old, err := t.config.Messages.Get(ctx, c.decision.Message.Key); {
	case err == nil && isFrom(&old.Message, c.Place):
		t.finish(c, howRepeated)
	case err != nil && postdate.KindOf(err) != postdate.KindNotFound:
		c.again(err)
	default:
		return false
	}
	return true
}

// taken says whether the id belongs to another message, or to one that may be another.
func taken(r store.Inserted) bool {
	return r.Err == nil || postdate.KindOf(r.Err) == postdate.KindExists
}

// inserted sets the result of a command if that of its insert alone decides it.
func (t *Taker) inserted(c *Command, r store.Inserted) store.Inserted {
	d := c.decision
	switch kind := postdate.KindOf(r.Err); {
	case r.Err == nil && d.Action == Upsert && !r.Created:
		// What is there may have been changed since: replace looks.
	case r.Err == nil && (r.Created || d.Identity != Borrowed ||
		r.Status == postdate.Pending && (r.ExecutionTime > t.config.Now() || d.Message.Recurrence != nil)):
		if r.Status == postdate.Pending {
			t.config.Scheduled(d.Message.Bucket, r.ExecutionTime)
		}
		how := howRepeated
		if r.Created {
			how = howScheduled
		}
		t.finish(c, how)
	case r.Err == nil:
		// The message id belongs to a message that may have been delivered: this is a
		// repetition of it, or a new message with the same message id.
	case kind == postdate.KindExists && d.Identity == Given && d.Action == Schedule:
		t.bad(c, "the schedule id is taken by a message with other content: choose another id")
	case kind == postdate.KindInvalid || kind == postdate.KindTooLarge:
		t.bad(c, r.Err.Error())
	default:
		c.again(r.Err)
	}
	return r
}

// rename gives a message whose id is taken another id. If it may be the same message as
// the stored one, or was renamed before, its delivery is marked as a possible duplicate.
func (t *Taker) rename(c *Command, r store.Inserted) {
	d := *c.decision
	d.Message.MayRepeat = d.Message.MayRepeat || r.Err == nil || c.Redelivered || d.Identity == Placed
	if d.Identity == Borrowed && c.Position != "" {
		d.Message.Key, d.Identity = t.config.Intake.Key(c.Position), Placed
	} else {
		d.Message.Key, d.Identity = t.config.Intake.Key(newID()), Fresh
	}
	_ = recurrence.Begin(&d.Message, d.Message.CreatedAt) // it could begin under the other id, too
	c.decision = &d
}

// replaceRoundsMax bounds how often a change is tried again without a pause because
// another request changed the same message in between.
const replaceRoundsMax = 8

// replace replaces the message that has the command's id.
func (t *Taker) replace(ctx context.Context, c *Command) {
	m := c.decision.Message
	for range replaceRoundsMax {
		old, err := t.config.Messages.Get(ctx, m.Key)
		if postdate.KindOf(err) == postdate.KindNotFound && err != nil {
			r := t.inserted(c, t.config.Messages.Insert(ctx, []postdate.Message{m})[0])
			if r.Err == nil || postdate.KindOf(r.Err) != postdate.KindExists {
				return
			}
			continue
		}
		if err != nil {
			c.again(err)
			return
		}
		if old.Digest == m.Digest || outdated(c, &old.Message) {
			t.finish(c, howRepeated)
			return
		}
		if c.decision.compacted && old.Status.Final() {
			if !t.renew(ctx, c, &old) {
				return
			}
			continue
		}
		m.CreatedAt = old.CreatedAt
		from := max(c.decision.Message.CreatedAt, old.Series.Passed()) // as for a PUT
		if err := recurrence.Begin(&m, from); err != nil {
			t.bad(c, "nothing was replaced: "+err.Error())
			return
		}
		m.Moved = old.MovedBy(&m, from)
		r, err := t.config.Messages.Replace(ctx, postdate.NewRecord(m, old.Version+1), old)
		switch kind := postdate.KindOf(err); {
		case err == nil:
			t.config.Scheduled(r.Bucket, r.ExecutionTime)
			t.finish(c, howReplaced)
			return
		case kind == postdate.KindTooLate && c.decision.compacted && r.Status.Final():
		case kind == postdate.KindTooLate && c.decision.compacted && c.late < lateMax:
			c.late++ // what it replaces is on its way; its consumer may have sent this already
			c.again(err)
			return
		case kind == postdate.KindTooLate:
			t.bad(c, "nothing was replaced: "+tooLate(r.State))
			return
		case kind == postdate.KindInvalid || kind == postdate.KindTooLarge:
			t.bad(c, "nothing was replaced: "+err.Error())
			return
		case kind != postdate.KindConflict && kind != postdate.KindNotFound:
			c.again(err)
			return
		}
	}
	c.again(errors.New("others keep changing the message"))
}

// SetLag sets the metric of how many messages wait in the source.
func (t *Taker) SetLag(messages int64) {
	t.config.Metrics.lag.WithLabelValues(t.config.Intake.Tenant, t.config.Source).Set(float64(messages))
}
