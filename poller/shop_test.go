package poller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

const ms = time.Millisecond

// bucketsMax is how many buckets a shop's store has. Its machine gets some of them.
const bucketsMax = 4_096

// shop is the rig of these tests: a machine and everything that it deals with. It has a store,
// the model (store_test.go), and plays the brokers, which confirm what they get, and the clocks,
// which stand still until the test lets time pass (run, sleep, work, tick, after).
//
// By default it answers every effect immediately. It fails the test if a bucket is claimed or a
// message settled twice at a time, or if nudges are held back during a claim.
//
// The test schedules messages (add, put), and changes what goes differently. Publishes to mute
// channels wait until the test answers them (reply, replyAll, confirm), and so do the store
// calls that waits selects (answer, answerWith, answerAll). What is down, broken or lost fails.
// A message then has arrived or failed, is flying (with its broker) or parked, or still waits in
// the store.
//
// newShop answers everything, newMuteShop no publish, newSlowShop no claim and no settlement,
// newBareShop (bare_test.go) no publish, and claims with the messages that a test names.
type shop struct {
	t     *testing.T
	m     *Machine
	now   postdate.Now
	begin postdate.Now // when the machine had its first buckets

	store *storetest.Mem
	added int // messages

	mute   func(postdate.Route) bool // its publishes wait for the test
	down   func(postdate.Route) bool // its broker says that it is down
	broken func(bucket int) bool     // what touches one of these in the store fails
	alone  bool                      // of claims that travel with those only theirs do
	lost   func(Claim) bool          // is written, and its answer is lost
	waits  func(Effect) bool         // is not answered by itself
	watch  func(Effect)              // sees every effect

	calls      []call    // of the store that are not answered, in order
	log        []call    // all of them since the beginning
	unanswered []Publish // what brokers have, in order
	mostFlying int       // messages that they had at a time
	arrived    map[postdate.Route]int
	failed     map[string]failure      // by id
	gone       map[int][]time.Duration // when buckets were handed over, since the beginning
	horizon    map[int]postdate.Time
}

// failure is how a message failed, and when.
type failure struct {
	at postdate.Time
	as store.Settlement
}

var (
	confirmed = publisher.Result{Outcome: publisher.Confirmed}
	refused   = publisher.Result{Outcome: publisher.Refused, Reason: "no such queue"}
	down      = publisher.Result{Outcome: publisher.Down, Reason: "no such host"}
	unknown   = publisher.Result{Outcome: publisher.Unknown, Reason: "the answer is lost"}
)

// every is true for all.
func every[T any](T) bool { return true }

// has reports whether an effect is of a kind.
func has[E Effect](e Effect) bool {
	_, is := e.(E)
	return is
}

// storeCalls are claims and settlements.
func storeCalls(e Effect) bool { return has[Claim](e) || has[Settle](e) }

// named is a channel whose name has a number in it.
func named(format string, a ...any) postdate.Route {
	return postdate.Route(fmt.Sprintf(format, a...))
}

// routeOf is the route of a batch.
func routeOf(p Publish) postdate.Route { return p.Batch[0].Delivery.Message.Route() }

// openShop is a shop whose machine owns nothing yet.
func openShop(t *testing.T, change func(*Config)) *shop {
	c := DefaultConfig()
	if change != nil {
		change(&c)
	}
	s := &shop{
		t: t, m: newMachine(c), now: postdate.Now{Wall: 1_900_000_000_000, Mono: time.Minute},
		store: storetest.NewMem(bucketsMax), horizon: map[int]postdate.Time{},
		arrived: map[postdate.Route]int{}, failed: map[string]failure{}, gone: map[int][]time.Duration{},
	}
	s.store.Watch = func(_ string, _, after *storetest.Row, as *store.Settlement) {
		if as != nil && as.How == store.SettleFailed {
			s.failed[after.ScheduleID] = failure{s.now.Wall, *as}
		}
	}
	s.begin = s.now
	s.renew()
	return s
}

// newShop is a shop that answers everything.
func newShop(t *testing.T, buckets int, change func(*Config)) *shop {
	s := openShop(t, change)
	s.gain(s.partitions(buckets)...)
	return s
}

// newMuteShop is a shop whose channels answer only when the test makes them answer.
func newMuteShop(t *testing.T, buckets int, change func(*Config)) *shop {
	s := newShop(t, buckets, change)
	s.mute = every
	return s
}

// newSlowShop is a shop whose store answers claims and settlements only when the test makes it
// answer. No sweep comes by itself, and the first ones are over.
func newSlowShop(t *testing.T, buckets int, change func(*Config)) *shop {
	s := openShop(t, func(c *Config) {
		c.SweepEvery, c.FindEvery = time.Hour, time.Hour
		if change != nil {
			change(c)
		}
	})
	s.waits = storeCalls
	s.gain(s.partitions(buckets)...)
	s.answerAll()
	s.sleep(2 * time.Second) // no call was made of late
	s.begin, s.log = s.now, nil
	return s
}

// partitions returns the records of n buckets that were claimed up to a second ago.
func (s *shop) partitions(n int) (all []bucket.Partition) {
	for b := range n {
		all = append(all, bucket.Partition{Bucket: b, Checkpoint: s.now.Wall - 1000, Claimed: bucket.UpTo(s.now.Wall - 1000)})
	}
	return all
}

// gain gives the machine buckets with these records, under their tokens or the first one.
func (s *shop) gain(records ...bucket.Partition) []Effect {
	for i := range records {
		p := &records[i]
		p.Owner, p.Token = "n", max(p.Token, 1)
		s.store.Records[p.Bucket] = *p
	}
	return s.step(fence.Gained{Partitions: records})
}

// renew renews the lease, and lapse ends it before that.
func (s *shop) renew() { s.step(fence.LeaseUntil{Mono: 1 << 60, Read: s.now}) }

func (s *shop) lapse() {
	s.m.leaseUntil = s.now.Mono
	s.renew()
}

// lose takes away buckets that the machine had under the first token.
func (s *shop) lose(buckets ...int) { s.step(fence.Lost{Holds: holds(buckets...)}) }

// drain makes it hand such buckets over.
func (s *shop) drain(buckets ...int) { s.step(fence.Drain{Holds: holds(buckets...)}) }

func holds(buckets ...int) (all []store.Hold) {
	for _, b := range buckets {
		all = append(all, store.Hold{Bucket: b, Token: 1})
	}
	return all
}

// limits sets all that operators set for channels.
func (s *shop) limits(all ...store.ChannelSettings) { s.step(Limits{Settings: all}) }

// put stores messages that are due some time from now, without a nudge. Their ids begin with
// their channel's name.
func (s *shop) put(b int, c postdate.Route, n int, in time.Duration) (all []postdate.Record) {
	for range n {
		s.added++
		key := postdate.Key{Bucket: b, Tenant: c.Tenant(), ScheduleID: fmt.Sprintf("%s-%06d", c, s.added)}
		s.store.Insert(s.t.Context(), []postdate.Message{{Key: key, Channel: c.Channel(), Priority: c.Priority(), ExecutionTime: s.now.Wall.Add(in)}})
		all = append(all, s.row(key).Record)
	}
	return all
}

// add stores messages, and nudges the machine.
func (s *shop) add(b int, c postdate.Route, n int, in time.Duration) {
	s.put(b, c, n, in)
	s.nudge(b, in)
}

func (s *shop) nudge(b int, in time.Duration) { s.step(Nudged{[]Nudge{{b, s.now.Wall.Add(in)}}}) }

// step takes an event and whatever is answered automatically, and returns all effects.
func (s *shop) step(ev Event) (all []Effect) {
	all = s.m.Step(s.now, ev)
	for _, e := range all {
		switch e := e.(type) {
		case Horizon:
			s.horizon[e.Bucket] = e.Before
		case Claim:
			s.began(call{number: e.Call, claim: &e})
		case Settle:
			s.began(call{number: e.Call, settle: &e})
		}
	}
	for _, e := range all {
		if s.watch != nil {
			s.watch(e)
		}
		if s.waits == nil || !s.waits(e) {
			all = append(all, s.respond(e)...)
		}
	}
	return all
}

// respond is what brokers and the store do with an effect.
func (s *shop) respond(e Effect) []Effect {
	switch e := e.(type) {
	case Claim:
		return s.answerNumber(e.Call)
	case Settle:
		return s.answerNumber(e.Call)
	case Publish:
		if s.mute != nil && s.mute(routeOf(e)) {
			s.unanswered = append(s.unanswered, e)
			s.mostFlying = max(s.mostFlying, s.flying())
			return nil
		}
		if s.down != nil && s.down(routeOf(e)) {
			return s.publish(e, down)
		}
		return s.publish(e, confirmed)
	case FindParked:
		if s.broken != nil && slices.ContainsFunc(e.Buckets, s.broken) {
			return s.step(ParkedFound{Buckets: e.Buckets, Err: errNoPrimary})
		}
		return s.step(s.findParked(e.Buckets))
	case Unpark:
		if s.broken != nil && s.broken(e.Unpark.Bucket) {
			return s.step(Unparked{Unpark: e.Unpark, Err: errNoPrimary})
		}
		return s.step(s.unpark(e.Unpark))
	case fence.Drained:
		for _, hold := range e.Holds {
			s.gone[hold.Bucket] = append(s.gone[hold.Bucket], s.now.Mono-s.begin.Mono)
		}
	}
	return nil
}

// publish answers a batch as its broker, with one result for all of its messages or one for
// each.
func (s *shop) publish(p Publish, results ...publisher.Result) []Effect {
	if len(results) == 1 {
		results = publisher.All(len(p.Batch), results[0])
	}
	for _, r := range results {
		if r.Outcome == publisher.Confirmed {
			s.arrived[routeOf(p)]++
		}
	}
	return s.step(Published{p.Batch, results})
}

// reply answers the publish that has waited longest.
func (s *shop) reply(results ...publisher.Result) {
	p := s.unanswered[0]
	s.unanswered = s.unanswered[1:]
	s.publish(p, results...)
}

// replyAll does the same for all waiting publishes of a channel.
func (s *shop) replyAll(c postdate.Route, result publisher.Result) {
	late := s.unanswered
	of := func(p Publish) bool { return routeOf(p) == c }
	s.unanswered = slices.DeleteFunc(slices.Clone(late), of)
	for _, p := range late {
		if of(p) {
			s.publish(p, result)
		}
	}
}

// confirm confirms this many of the waiting publishes, confirmAll all of them.
func (s *shop) confirm(batches int) {
	n := min(batches, len(s.unanswered))
	late := s.unanswered[:n]
	s.unanswered = s.unanswered[n:]
	for _, p := range late {
		s.publish(p, confirmed)
	}
}

func (s *shop) confirmAll() { s.confirm(len(s.unanswered)) }

// flying counts the messages with brokers: of the given channels, or of all if there are none.
func (s *shop) flying(of ...postdate.Route) (n int) {
	for _, p := range s.unanswered {
		if len(of) == 0 || slices.Contains(of, routeOf(p)) {
			n += len(p.Batch)
		}
	}
	return n
}

// parked counts the messages that are parked in the store, in the same way.
func (s *shop) parked(of ...postdate.Route) (n int) {
	for _, rows := range s.store.Shelved {
		for _, r := range rows {
			if len(of) == 0 || slices.Contains(of, r.Route()) {
				n++
			}
		}
	}
	return n
}

// doubt counts, per channel, the messages that a crash would leave in doubt now, and those
// that cannot be cancelled.
func (s *shop) doubt() (inDoubt, fixed map[postdate.Route]int) {
	inDoubt, fixed = map[postdate.Route]int{}, map[postdate.Route]int{}
	for b, rows := range s.store.Waiting {
		record := s.store.Records[b]
		for _, r := range rows {
			if !r.Parked && record.InDoubt(r.Route(), bucket.PositionOf(r.Key, r.AttemptTime)) {
				inDoubt[r.Route()]++
			}
			if !record.Withdrawable(r.Key, r.Route(), r.State) {
				fixed[r.Route()]++
			}
		}
	}
	return inDoubt, fixed
}

// after lets time pass in which the machine is not stepped.
func (s *shop) after(d time.Duration) { s.now = s.now.Later(d) }

// tick lets time pass in one step, and then steps the machine.
func (s *shop) tick(d time.Duration) {
	s.after(d)
	s.step(fence.Tick{})
}

// run steps it every 5 ms, and calls each before every step.
func (s *shop) run(d time.Duration, each ...func()) {
	for end := s.now.Mono + d; s.now.Mono < end; {
		s.after(5 * ms)
		for _, do := range each {
			do()
		}
		s.step(fence.Tick{})
	}
}

// sleep steps it only when it asked to be woken, so that what it forgets to ask for comes late.
func (s *shop) sleep(d time.Duration) { s.pass(d, false) }

// work does the same, and lets the store answer every call immediately.
func (s *shop) work(d time.Duration) { s.pass(d, true) }

func (s *shop) pass(d time.Duration, answer bool) {
	s.t.Helper()
	for end := s.now.Mono + d; ; {
		if answer {
			s.answerAll()
		}
		wait := s.m.Wake(s.now)
		if wait <= 0 {
			s.t.Fatalf("it wants to be woken after %s", wait)
		}
		if s.now.Mono+wait > end {
			s.after(end - s.now.Mono)
			return
		}
		s.tick(wait)
	}
}

// untilSent waits until something is with a broker.
func (s *shop) untilSent() {
	s.t.Helper()
	for range 400 {
		if len(s.unanswered) > 0 {
			return
		}
		s.run(5 * ms)
	}
	s.t.Fatal("nothing is sent")
}
