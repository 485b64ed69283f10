package sim

import (
	"fmt"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/store"
)

// history records everything that the promises speak of, and passes each fact to the watchers,
// which check the promises.
type history struct {
	w       *world
	stories map[int]*story    // by number
	about   map[string]*story // by edition
	order   []*story
	free    []postdate.Key                 // of expired messages, the last settled last
	letters []letter                       // in the inbox, in the order in which they came
	gains   map[gain]bucket.Partition      // each as it was gained
	moves   map[int][]postdate.Time        // when each bucket changed its owner, in true time
	told    map[poller.Nudge]postdate.Time // when the bucket's owner was last nudged, in true time
	late    []time.Duration                // how late messages came, 0 for those not judged; for promise 8
	open    int                            // records that are not final yet and must be in the end
	sent    int                            // emissions so far
	counts  map[string]int
	reads   map[string]firstRead // of the present occurrences of series, by edition
	decided postdate.Time        // when what is being written to a series was decided, in true time

	redrivenAt postdate.Time // the time that the last redrive was given
}

// gain is a token that one process got.
type gain struct {
	p      *process
	bucket int
	token  uint64
}

// story is what happens to one message, from its scheduling to its expiry. Other messages may
// have its key before and after.
type story struct {
	number    int
	key       postdate.Key
	request   *postdate.Message // the message as scheduled; nil: not yet
	requests  []*request
	emissions []*emission
	withdrawn map[string]string // by edition: what withdrew it for certain
	acked     bool
	ackedAt   time.Duration
	written   int           // how often its record was written
	begun     postdate.Time // when its present version was written, in true time
	parked    bool          // its present version has been parked
	ended     postdate.Time // when it became final, by the time by which retention counts
	expired   bool          // its record is gone, and its key is free
	surelyNot bool          // it was purged, and had not arrived

	tale        *tale // of a series
	inserted    postdate.Time
	occurrences int           // of a series: how many stories its occurrences have
	series      *story        // of an occurrence
	at          postdate.Time // likewise: its time
	begins      postdate.Time // likewise: with its part of the jitter
	skipped     bool          // likewise
	chosen      bool          // likewise: those before it were skipped, so that it begins
	extra       bool          // likewise: out of turn

	failed *story // of what a failed message left: the story of that
}

// emission is one message in one publish.
type emission struct {
	number    int
	story     *story
	edition   string // each version and each occurrence has its own (editionOf)
	process   *process
	token     uint64
	message   *postdate.Message
	marked    bool
	at        time.Duration
	wall      postdate.Time // the node's wall clock
	row       *row          // what the store held at that time
	begun     postdate.Time // when that version was written, in true time
	over      bool          // it held none because the series had gone on
	partition bucket.Partition
	first     bool // the first one of its edition
	unaware   bool // its node was frozen, and cannot know yet that its lease has ended
	mayArrive bool
	whole     bool          // it is to be delivered and settled in one step
	arrivedAt time.Duration // 0: not yet
	attempt   int

	handedOver postdate.Time // by the time by which retention counts
	delivered  postdate.Time // the same moment, as its process dates it
	answered   postdate.Time // when its process learned the outcome, by that time; 0: not yet
}

// letter is a message in the inbox.
type letter struct {
	story *story
	at    postdate.Time // by the time by which retention counts
	wall  postdate.Time // the time that it carries
}

// A fact is something that happened. Each watcher looks at the facts that concern it.
type fact any

// The facts.
type (
	factEmit   struct{ e *emission }
	factArrive struct{ e *emission }
	factRecord struct {
		by            string
		story         *story
		present       *story // what could be sent before: the story or, of a series, that of an occurrence
		before, after *row   // before is nil for a new record
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
	factPurged struct {
		failed store.Versioned
		story  *story
		old    *row
	}
	factOverran struct{ p *process } // an orderly stop took too long
	factAnswer  struct{ r *request }
	factEnd     struct{}
)

// watchers check the promises, by number. Each says what is wrong with a fact, or "".
var watchers = [...]func(h *history, f fact) string{
	0: conservation, 1: promise1, 2: promise2, 3: promise3, 4: promise4, 5: promise5, 6: promise6, 7: promise7,
	8: promise8, 9: promise9,
}

func newHistory(w *world) *history {
	return &history{w: w, stories: map[int]*story{}, about: map[string]*story{}, gains: map[gain]bucket.Partition{},
		moves: map[int][]postdate.Time{}, told: map[poller.Nudge]postdate.Time{}, counts: map[string]int{},
		reads: map[string]firstRead{}}
}

// order is the order in which the watchers look: the most specific first.
var order = [...]int{0, 2, 3, 5, 6, 4, 7, 8, 1, 9}

// note passes a fact to all watchers.
func (h *history) note(f fact) {
	for _, promise := range order {
		if wrong := watchers[promise](h, f); wrong != "" && h.w.violation == nil {
			h.w.violate(promise, "%s", wrong)
		}
	}
}

// story returns the story of message number n, which it begins if necessary.
func (h *history) story(n int) *story {
	if h.stories[n] == nil {
		h.begin(n, h.w.keyOf(n))
	}
	return h.stories[n]
}

// inherit gives message number n the id of an expired message, if there is one.
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

// known returns the story of message number n, or nil.
func (h *history) known(n int) *story { return h.stories[n] }

// record returns what the store holds of a message, or nil.
func (h *history) record(s *story) *row {
	if s.expired {
		return nil
	}
	return h.w.store.Rows[s.key]
}

func (h *history) gained(p *process, g bucket.Partition) {
	h.gains[gain{p, g.Bucket, g.Token}] = g
}

// emitted records that a process hands a message to its broker.
func (h *history) emitted(p *process, d postdate.Delivery, marked, whole bool) *emission {
	m := d.Message
	s := h.about[editionOf(m)]
	h.sent++
	e := &emission{
		number: h.sent, story: s, edition: editionOf(m), process: p, token: p.m.Token(m.Bucket), message: m,
		attempt: d.Attempt, marked: marked,
		at: h.w.now, wall: p.n.clock.now().Wall, partition: h.w.store.Records[m.Bucket], first: true, whole: whole,
		unaware: h.w.now < p.n.unaware,
	}
	e.row, e.over = h.sentFrom(s)
	e.begun = s.begun
	for _, o := range s.emissions {
		if o.edition == e.edition {
			e.first = false
		}
	}
	s.emissions = append(s.emissions, e)
	h.note(factEmit{e})
	return e
}

// arrived records that a message has reached its consumer.
func (h *history) arrived(e *emission) {
	e.arrivedAt = h.w.now
	if h.w.plan.short() && e.message.Channel.Broker() == "inbox" {
		h.letters = append(h.letters, letter{e.story, e.handedOver, e.delivered})
		// One inbox for both tenants, because letters are in its order.
		h.w.store.AppendInbox(ctx, []store.InboxMessage{{Tenant: postdate.DefaultTenant,
			Inbox: e.message.Channel.Target(), DeliveredAt: e.delivered}})
	}
	h.w.mark(14, uint64(e.story.number), b2u(e.marked))
	h.w.tell(nil, "%s %q arrives, marked %t", e.story.key.ScheduleID, e.edition, e.marked)
	h.counts["arrived"]++
	if e.marked {
		h.counts["marked"]++
	}
	h.note(factArrive{e})
}

// due reports whether a message must be final in the end. If the clock of a node that is alone
// was ahead, the next attempt may be long after the end, and so may the end of the wait for a
// channel that never comes back.
func (h *history) due(r *row) bool {
	end := epoch.Add(h.w.plan.length + healMax/2)
	waits := h.w.plan.alone() && r.AttemptTime >= end && (!r.Parked || h.w.channels[r.Channel].kind == channelGone)
	return r.NotBefore() < end && !waits && !r.Paused
}

func (h *history) recordChanged(by string, before, after *row, st *store.Settlement) {
	by, st = splitSettlement(by, before, after, st)
	extra := by == "trigger" && before == nil
	if extra {
		o := h.occurrence(&after.Message)
		o.extra, o.begins = true, o.at
		clear(o.withdrawn) // another rule may have left it out
	}
	if by == "leave" {
		h.left(&after.Message)
	}
	s := h.storyOf(after)
	if by == "insert" && s.request.Recurrence != nil {
		s.tale, s.inserted = newTale(s.request), h.w.wall()
	}
	present := h.presentOf(after)
	s.written++
	if by == "insert" || by == "replace" || by == "redrive" || by == "leave" || extra ||
		before != nil && before.Occurrence != after.Occurrence {
		present.begun, present.parked = h.w.wall(), false
	}
	present.parked = present.parked || after.Parked
	if before != nil {
		present = h.presentOf(before)
	}
	if before != nil && before.Status == postdate.Pending && h.due(before) {
		h.open--
	}
	if after.Status == postdate.Pending && h.due(after) {
		h.open++
	}
	if after.Status.Final() && by != "count" {
		h.counts[after.Status.String()]++
		s.ended = h.ended(s, present, before, st)
	}
	h.w.mark(15, uint64(s.number), after.Version, uint64(after.Status), uint64(after.AttemptTime))
	h.note(factRecord{by, s, present, before, after, st})
	// after the watchers, which must see what was withdrawn before
	if by == "replace" || by == "cancel" && after.Status.Final() {
		present.withdrawn[presentEdition(&before.Record)] = fmt.Sprintf("the %s at %s", by, h.w.now)
	}
	if after.Recurrence != nil && after.Status == postdate.Pending && (by == "replace" || st != nil) {
		next, edition := h.presentOf(after), presentEdition(&after.Record)
		next.begins = s.tale.begins(next.at) // another rule may have left it out, or had it later
		delete(next.withdrawn, edition)
		delete(h.reads, edition)
	}
}

// expired records that records and the oldest letters of the inbox were deleted.
func (h *history) expired(by deletion, old []*row, letters int) {
	for _, r := range old {
		s := h.storyOf(r)
		h.forget(s)
		h.counts["expired"]++
		h.w.mark(18, uint64(s.number))
		h.w.tell(nil, "%s %q expires by %s", s.key.ScheduleID, r.Payload, by.node)
	}
	h.counts["letters expired"] += letters
	h.note(factExpired{by, old, h.letters[:letters]})
	h.letters = h.letters[letters:]
}

// forget notes that the record of a message is gone.
func (h *history) forget(s *story) {
	s.expired = true
	if s.series == nil && s.failed == nil {
		h.free = append(h.free, s.key)
	}
}

func (h *history) partitionChanged(by string, before, after bucket.Partition) {
	h.w.mark(16, uint64(after.Bucket), after.Token)
	h.note(factPartition{by, before, after})
}

func (h *history) claimed(node string, c store.Claim, before, after bucket.Partition) {
	h.note(factClaim{node, c, before, after})
}

// unfinished reports whether something that is due is not settled.
func (h *history) unfinished() bool { return h.open > 0 }
