package sim

import (
	"fmt"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/store"
)

// history sees everything that the promises speak of, and hands each fact to
// the functions that watch over them.
type history struct {
	w       *world
	stories map[int]*story    // by number
	about   map[string]*story // by edition
	order   []*story
	free    []postdate.Key                 // of messages that expired; those that were settled last come last
	letters []letter                       // those that are in the inbox, in the order in which they came
	gains   map[gain]bucket.Partition      // as they were gained
	moves   map[int][]postdate.Time        // when a bucket got another owner, in true time
	told    map[poller.Nudge]postdate.Time // when the owner of its bucket was nudged last, in true time
	open    int                            // records that are not final and are to be at the end
	sent    int                            // emissions so far
	counts  map[string]int
}

// gain is a token as one process got it.
type gain struct {
	p      *process
	bucket int
	token  uint64
}

// story is what happened to one message, from when it is scheduled until it expires.
// Another one may have its key before and after.
type story struct {
	number    int
	key       postdate.Key
	request   *postdate.Message // as it was scheduled; nil: not yet
	requests  []*request
	emissions []*emission
	withdrawn map[string]string // by edition: what took it back for certain
	acked     bool
	ackedAt   time.Duration
	written   int           // how often its record was changed
	begun     postdate.Time // when its present version was written, in true time
	parked    bool          // its present version was parked at some time
	ended     postdate.Time // when it became final, by the time by which retention counts
	expired   bool          // its record is gone, and its key is free
}

// emission is one message of one publish.
type emission struct {
	number    int
	story     *story
	edition   string // the payload: each version has its own
	process   *process
	token     uint64
	message   *postdate.Message
	marked    bool
	at        time.Duration
	wall      postdate.Time // of the node
	row       *row          // what the store held then
	partition bucket.Partition
	first     bool // the first one of its edition
	unaware   bool // its node was frozen, and cannot know yet that its lease ran out
	mayArrive bool
	arrivedAt time.Duration // 0: not yet
	attempt   int

	handedOver postdate.Time // by the time by which retention counts
	delivered  postdate.Time // then, by its process
	answered   postdate.Time // when its process learned the outcome, by that time; 0: not yet
}

// letter is a message in the inbox.
type letter struct {
	story *story
	at    postdate.Time // by the time by which retention counts
	wall  postdate.Time // what it says itself
}

// A fact is something that happened. The functions that watch over the promises
// look at the facts that concern them.
type fact any

// The facts.
type (
	factEmit   struct{ e *emission }
	factArrive struct{ e *emission }
	factRecord struct {
		by            string
		story         *story
		before, after *row // before is nil for a new one
		settlement    *store.Settlement
	}
	factClaim struct {
		node          string
		claim         store.Claim
		before, after bucket.Partition
	}
	factPartition struct {
		by            string
		before, after bucket.Partition
	}
	factExpired struct {
		by      deletion
		old     []*row
		letters []letter
	}
	factOverran struct{ p *process } // an orderly stop did not end in its time
	factAnswer  struct{ r *request }
	factEnd     struct{}
)

// watchers are the functions that watch over the promises, by number. Each says
// what is wrong with a fact, or nothing.
var watchers = [...]func(h *history, f fact) string{
	0: conservation, 1: promise1, 2: promise2, 3: promise3, 4: promise4, 5: promise5, 6: promise6, 7: promise7, 8: promise8,
}

func newHistory(w *world) *history {
	return &history{w: w, stories: map[int]*story{}, about: map[string]*story{}, gains: map[gain]bucket.Partition{}, moves: map[int][]postdate.Time{}, told: map[poller.Nudge]postdate.Time{}, counts: map[string]int{}}
}

// order is the order in which the watchers look: the most particular ones first.
var order = [...]int{0, 2, 3, 5, 6, 4, 7, 8, 1}

// note hands a fact to everybody who watches.
func (h *history) note(f fact) {
	for _, promise := range order {
		if wrong := watchers[promise](h, f); wrong != "" && h.w.violation == nil {
			h.w.violate(promise, "%s", wrong)
		}
	}
}

// story is that of message number n.
func (h *history) story(n int) *story {
	if h.stories[n] == nil {
		h.begin(n, h.w.keyOf(n))
	}
	return h.stories[n]
}

// inherit gives message number n the id of one that expired, if there is one.
func (h *history) inherit(n int) {
	if last := len(h.free) - 1; last >= 0 && h.stories[n] == nil {
		h.begin(n, h.free[last])
		h.free = h.free[:last]
	}
}

func (h *history) begin(n int, key postdate.Key) {
	s := &story{number: n, key: key, withdrawn: map[string]string{}}
	h.stories[n] = s
	h.order = append(h.order, s)
}

// known is the story of message number n, if there is one.
func (h *history) known(n int) *story { return h.stories[n] }

// record is what the store holds of a message, or nil.
func (h *history) record(s *story) *row {
	if s.expired {
		return nil
	}
	return h.w.store.Rows[s.key]
}

func (h *history) gained(p *process, g bucket.Partition) {
	h.gains[gain{p, g.Bucket, g.Token}] = g
}

// emitted notes that a process hands a message to its broker, now.
func (h *history) emitted(p *process, d postdate.Delivery, marked bool) *emission {
	m := d.Message
	s := h.about[string(m.Payload)]
	h.sent++
	e := &emission{
		number: h.sent, story: s, edition: string(m.Payload), process: p, token: p.m.Token(m.Bucket), message: m, attempt: d.Attempt, marked: marked,
		at: h.w.now, wall: p.n.clock.now().Wall, row: h.record(s), partition: h.w.store.Records[m.Bucket], first: true,
		unaware: h.w.now < p.n.unaware,
	}
	for _, o := range s.emissions {
		if o.edition == e.edition {
			e.first = false
		}
	}
	s.emissions = append(s.emissions, e)
	h.note(factEmit{e})
	return e
}

// arrived notes that a message is with its consumer.
func (h *history) arrived(e *emission) {
	e.arrivedAt = h.w.now
	if h.w.plan.short() && e.message.Channel.Broker() == "inbox" {
		h.letters = append(h.letters, letter{e.story, e.handedOver, e.delivered})
		h.w.store.AppendInbox(ctx, []store.InboxMessage{{Tenant: e.message.Tenant, Inbox: e.message.Channel.Target(), DeliveredAt: e.delivered}})
	}
	h.w.mark(14, uint64(e.story.number), b2u(e.marked))
	h.w.tell(nil, "%s %q arrives, marked %t", e.story.key.ScheduleID, e.edition, e.marked)
	h.counts["arrived"]++
	if e.marked {
		h.counts["marked"]++
	}
	h.note(factArrive{e})
}

// due says whether a message is to be final at the end. Where a node is alone and its clock
// was ahead, the next attempt, or the end of the wait for a channel that never comes back, may
// be long after that.
func (h *history) due(r *row) bool {
	end := epoch.Add(h.w.plan.length + healMax/2)
	waits := h.w.plan.alone() && r.AttemptTime >= end && (!r.Parked || h.w.channels[r.Channel].kind == channelGone)
	return r.ExecutionTime < end && !waits
}

func (h *history) recordChanged(by string, before, after *row, st *store.Settlement) {
	s := h.about[string(after.Payload)]
	s.written++
	if st == nil && by != "unpark" {
		s.begun, s.parked = h.w.wall(), false
	}
	s.parked = s.parked || after.Parked
	if before != nil && before.Status == postdate.Pending && h.due(before) {
		h.open--
	}
	if after.Status == postdate.Pending && h.due(after) {
		h.open++
	}
	if after.Status.Final() {
		h.counts[after.Status.String()]++
		s.ended = h.ended(s, before, after, st)
	}
	h.w.mark(15, uint64(s.number), after.Version, uint64(after.Status), uint64(after.AttemptTime))
	h.note(factRecord{by, s, before, after, st})
	switch by { // after the watchers: they are to see what was withdrawn before
	case "cancel", "replace":
		s.withdrawn[string(before.Payload)] = fmt.Sprintf("the %s at %s", by, h.w.now)
	}
}

// expired notes that records were deleted, and the oldest letters of the inbox.
func (h *history) expired(by deletion, old []*row, letters int) {
	for _, r := range old {
		s := h.about[string(r.Payload)]
		s.expired = true
		h.free = append(h.free, s.key)
		h.counts["expired"]++
		h.w.mark(18, uint64(s.number))
		h.w.tell(nil, "%s %q expires by %s", s.key.ScheduleID, r.Payload, by.node)
	}
	h.counts["letters expired"] += letters
	h.note(factExpired{by, old, h.letters[:letters]})
	h.letters = h.letters[letters:]
}

func (h *history) partitionChanged(by string, before, after bucket.Partition) {
	h.w.mark(16, uint64(after.Bucket), after.Token)
	h.note(factPartition{by, before, after})
}

func (h *history) claimed(node string, c store.Claim, before, after bucket.Partition) {
	h.note(factClaim{node, c, before, after})
}

// unfinished says whether something that is due is not settled, or a request is
// not answered.
func (h *history) unfinished() bool { return h.open > 0 }
