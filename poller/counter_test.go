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
)

// counter is a machine whose calls of the store lie at a counter until the test answers them. It
// is stepped when it wants to be woken, and at no other time: so what it forgets to ask for
// comes late. Brokers confirm at once; no sweep comes by itself.
type counter struct {
	t       *testing.T
	m       *Machine
	now     postdate.Now
	begin   time.Duration
	rows    map[int][]postdate.Record
	record  map[int]bucket.Partition
	broken  func(bucket int) bool // calls that touch one of these fail
	alone   bool                  // only the results of claims of these fail
	mute    func(postdate.Channel) bool
	horizon map[int]postdate.Time

	unanswered []Publish // to channels that are mute

	calls []call // that are not answered, in order
	log   []call // all of them
	added int
}

// call is one call of the store: one of its effects.
type call struct {
	at      time.Duration // since the beginning
	claim   *Claim
	settle  *Settle
	buckets []int
}

func newCounter(t *testing.T, buckets int, change func(*Config)) *counter {
	c := DefaultConfig()
	c.SweepEvery, c.FindEvery = time.Hour, time.Hour
	if change != nil {
		change(&c)
	}
	d := &counter{
		t: t, m: newMachine(c), now: postdate.Now{Wall: 1_900_000_000_000, Mono: time.Minute},
		rows: map[int][]postdate.Record{}, record: map[int]bucket.Partition{}, horizon: map[int]postdate.Time{},
		broken: func(int) bool { return false }, mute: func(postdate.Channel) bool { return false },
	}
	var ps []bucket.Partition
	for b := range buckets {
		d.record[b] = bucket.Partition{Bucket: b, Owner: "n", Token: 1, Checkpoint: d.now.Wall - 1000, Claimed: bucket.UpTo(d.now.Wall - 1000)}
		ps = append(ps, d.record[b])
	}
	d.step(fence.LeaseUntil{Mono: 1 << 60, Read: d.now})
	d.step(fence.Gained{Partitions: ps})
	d.answerAll()
	d.wait(2 * time.Second) // the first sweeps are over, and no call was made of late
	d.begin, d.log = d.now.Mono, nil
	return d
}

// step takes an event, and what brokers answer to it.
func (d *counter) step(ev Event) (all []Effect) {
	all = d.m.Step(d.now, ev)
	for _, e := range all {
		switch e := e.(type) {
		case Horizon:
			d.horizon[e.Bucket] = e.Before
		case Claim:
			d.began(call{claim: &e})
		case Settle:
			d.began(call{settle: &e})
		}
	}
	for _, e := range all {
		switch e := e.(type) {
		case FindParked:
			all = append(all, d.step(d.find(e))...)
		case Unpark:
			ev := Unparked{Unpark: e.Unpark}
			if d.broken(e.Unpark.Bucket) {
				ev.Err = postdate.E(postdate.KindUnknown, "no primary")
			} else {
				ev.Moved = d.unpark(e.Unpark)
			}
			all = append(all, d.step(ev)...)
		case Publish:
			if d.mute(e.Channel) {
				d.unanswered = append(d.unanswered, e)
			} else {
				all = append(all, d.step(Published{e.Batch, publisher.All(len(e.Batch), publisher.Result{Outcome: publisher.Confirmed})})...)
			}
		}
	}
	return all
}

// began puts a call at the counter, and looks whether it may lie there beside the others.
func (d *counter) began(c call) {
	d.t.Helper()
	c.at = d.now.Mono - d.begin
	if c.claim != nil {
		for _, one := range c.claim.Claims {
			c.buckets = append(c.buckets, one.Bucket)
			if d.horizon[one.Bucket] != postdate.Far {
				d.t.Errorf("a claim of bucket %d begins, and nudges after %d are kept from the machine", one.Bucket, d.horizon[one.Bucket])
			}
		}
	} else {
		for _, one := range c.settle.Settlements {
			c.buckets = append(c.buckets, one.Key.Bucket)
		}
	}
	for _, o := range d.calls {
		for _, b := range c.buckets {
			if o.claim != nil && c.claim != nil && slices.Contains(o.buckets, b) {
				d.t.Errorf("bucket %d is claimed twice at a time", b)
			}
		}
		if o.settle == nil || c.settle == nil {
			continue
		}
		for _, s := range c.settle.Settlements {
			if slices.ContainsFunc(o.settle.Settlements, func(s2 store.Settlement) bool { return s2.Key == s.Key }) {
				d.t.Errorf("%v is settled twice at a time", s.Key)
			}
		}
	}
	d.calls, d.log = append(d.calls, c), append(d.log, c)
}

// answer answers the first call at the counter that is one of those wanted, and says whether
// there was one.
func (d *counter) answer(wanted func(call) bool) bool {
	i := slices.IndexFunc(d.calls, wanted)
	if i < 0 {
		return false
	}
	d.answerWith(d.calls[i])
	return true
}

// answerWith answers this call, and says what follows.
func (d *counter) answerWith(c call) []Effect {
	d.calls = slices.DeleteFunc(d.calls, func(o call) bool { return o.claim == c.claim && o.settle == c.settle })
	fails := slices.ContainsFunc(c.buckets, d.broken)
	if c.claim != nil {
		return d.step(Claimed{c.claim.Call, d.claimed(c.claim, fails)})
	}
	ev := Settled{Call: c.settle.Call}
	if fails {
		ev.Err = postdate.E(postdate.KindUnknown, "no primary")
	} else {
		for _, s := range c.settle.Settlements {
			rows := d.rows[s.Key.Bucket]
			if i := slices.IndexFunc(rows, func(r postdate.Record) bool { return r.Key == s.Key }); i >= 0 {
				rows[i].State = s.State(rows[i].State)
			}
			d.rows[s.Key.Bucket] = slices.DeleteFunc(rows, func(r postdate.Record) bool { return r.Status.Final() })
			d.sort(s.Key.Bucket)
		}
	}
	return d.step(ev)
}

// confirm is what a mute broker says at last to so many of the batches that it has.
func (d *counter) confirm(batches int) {
	n := min(batches, len(d.unanswered))
	late := d.unanswered[:n]
	d.unanswered = d.unanswered[n:]
	for _, p := range late {
		d.step(Published{p.Batch, publisher.All(len(p.Batch), publisher.Result{Outcome: publisher.Confirmed})})
	}
}

// claimed is what the store answers to claims.
func (d *counter) claimed(e *Claim, fails bool) []store.ClaimResult {
	results := make([]store.ClaimResult, len(e.Claims))
	for i, c := range e.Claims {
		if fails && (!d.alone || d.broken(c.Bucket)) {
			results[i].Err = postdate.E(postdate.KindUnknown, "no primary")
			continue
		}
		r := found(d.rows[c.Bucket], c, 20_000)
		if r.To != (bucket.Position{}) {
			c.Claim.To = r.To
			next, err := d.record[c.Bucket].Claim(c.Claim)
			if r.Err = err; err == nil {
				d.record[c.Bucket] = next
			}
		}
		results[i] = r
	}
	return results
}

// answerAll answers every call, also those that follow.
func (d *counter) answerAll() {
	for d.answer(func(call) bool { return true }) {
	}
}

// wait lets time pass, and wakes the machine when it wants to be woken.
func (d *counter) wait(long time.Duration) { d.pass(long, false) }

// work does the same, and answers every call at once.
func (d *counter) work(long time.Duration) { d.pass(long, true) }

func (d *counter) pass(long time.Duration, answer bool) {
	for end := d.now.Mono + long; ; {
		if answer {
			d.answerAll()
		}
		wait := d.m.Wake(d.now)
		if wait <= 0 {
			d.t.Fatalf("it wants to be woken after %s", wait)
		}
		if d.now.Mono+wait > end {
			d.now = d.now.Later(end - d.now.Mono)
			return
		}
		d.now = d.now.Later(wait)
		d.step(fence.Tick{})
	}
}

// find is what the store says of parked messages.
func (d *counter) find(e FindParked) ParkedFound {
	ev := ParkedFound{Buckets: e.Buckets}
	if slices.ContainsFunc(e.Buckets, d.broken) {
		ev.Err = postdate.E(postdate.KindUnknown, "no primary")
		return ev
	}
	for _, b := range e.Buckets {
		for _, r := range d.rows[b] {
			if r.Parked {
				ev.Found = append(ev.Found, store.ParkedChannel{Bucket: b, Channel: r.Channel})
			}
		}
	}
	return ev
}

// unpark is what the store does to parked messages, and how many there were.
func (d *counter) unpark(u store.Unpark) (moved int) {
	for i := range d.rows[u.Bucket] {
		if r := &d.rows[u.Bucket][i]; r.Parked && r.Channel == u.Channel && moved < u.Limit {
			r.Parked, r.AttemptTime = false, u.At
			moved++
		}
	}
	d.sort(u.Bucket)
	return moved
}

func (d *counter) sort(b int) {
	slices.SortFunc(d.rows[b], func(x, y postdate.Record) int {
		return bucket.PositionOf(x.Key, x.AttemptTime).Compare(bucket.PositionOf(y.Key, y.AttemptTime))
	})
}

// add brings a bucket a message that is due some time from now.
func (d *counter) add(b int, c postdate.Channel, in time.Duration) {
	d.added++
	at := d.now.Wall.Add(in)
	key := postdate.Key{Bucket: b, Tenant: "t", ScheduleID: fmt.Sprintf("%s-%06d", c, d.added)}
	m := postdate.Message{Key: key, Channel: c, ExecutionTime: at}
	d.rows[b] = append(d.rows[b], postdate.Record{Message: m, State: postdate.NewState(&m, 1)})
	d.sort(b)
	d.step(Nudged{[]Nudge{{b, at}}})
}

// nudgeAll says of all buckets at once that something is due.
func (d *counter) nudgeAll() {
	var nudges []Nudge
	for b := range len(d.record) {
		nudges = append(nudges, Nudge{b, d.now.Wall})
	}
	d.step(Nudged{nudges})
}

// begun lists when calls of a sort began, those that touch a bucket or with -1 all of them, and how
// many buckets each of them touched.
func (d *counter) begun(claims bool, b int) (at []time.Duration, sizes []int) {
	for _, c := range d.log {
		if (c.claim != nil) == claims && (b < 0 || slices.Contains(c.buckets, b)) {
			at, sizes = append(at, c.at), append(sizes, len(slices.Compact(slices.Sorted(slices.Values(c.buckets)))))
		}
	}
	return at, sizes
}

func claims(c call) bool  { return c.claim != nil }
func settles(c call) bool { return c.settle != nil }
