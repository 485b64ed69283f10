package mongo

import (
	"fmt"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// The tests here play the protocol of DESIGN.md on one message and one record, with the
// package's own decisions, in every order of its steps. A step is what the server does
// atomically: one conditional write, or one read.

// world is what the server holds, and what came out.
type world struct {
	p  bucket.Partition
	st postdate.State
	m  *mark

	published []uint64 // versions that an owner was given to publish after its claim
	told      map[string]uint64
	refused   int
}

const (
	playClaimed = postdate.Time(50) // before anything happens
	playDue     = postdate.Time(100)
	playTo      = postdate.Time(200) // of the claims that race
	playChannel = "inbox:a"
)

var (
	playKey = postdate.Key{Tenant: "default", ScheduleID: "m"}
	// playShort is a page that others fill: it ends within the message's millisecond.
	playShort = bucket.PositionOf(postdate.Key{Tenant: "default", ScheduleID: "l"}, playDue)
	// playBehind has less claimed of the message's channel.
	playBehind = map[postdate.Route]bucket.Position{playChannel: bucket.UpTo(playClaimed)}
)

// covered says whether what is claimed covers the message as it is.
func (w *world) covered() bool {
	return !w.p.ClaimedFor(playChannel).Before(bucket.PositionOf(playKey, w.st.AttemptTime))
}

func newWorld() *world {
	return &world{
		p:    bucket.Partition{Owner: "a", Token: 1, Claimed: bucket.UpTo(playClaimed)},
		st:   postdate.State{Status: postdate.Pending, Version: 1, AttemptTime: playDue},
		told: map[string]uint64{},
	}
}

// actor is one process's run through the protocol. step advances it by one step of the server,
// and says whether the run has ended.
type actor interface{ step(w *world) (ended bool) }

// canceller is a cancel, or a replace to a later time if replace is set.
type canceller struct {
	name    string
	replace bool
	at      int
	try     int
	same    bson.ObjectID // of its first mark: for what is wrong
	id      bson.ObjectID
	st      postdate.State
	m       *mark
	p       bucket.Partition
}

func (c *canceller) step(w *world) bool {
	switch c.at {
	case 0: // mark
		c.id, c.at = bson.NewObjectID(), 1
		if c.try == 0 && !c.same.IsZero() {
			c.id = c.same
		}
		(&latecomer{c.id}).step(w)
	case 1, 2: // look, in either order
		if (c.at == 1) == (c.try%2 == 0) {
			c.st, c.m = w.st, w.m
		} else {
			c.p = w.p
		}
		if c.at++; c.at == 3 {
			return c.look(w)
		}
	case 3: // finish
		if !w.m.is(c.id) || w.st.Status != postdate.Pending {
			return c.again()
		}
		w.told[c.name] = w.st.Version
		w.m = nil
		if c.replace {
			w.st = postdate.State{Status: postdate.Pending, Version: w.st.Version + 1, AttemptTime: playTo + 100}
		} else {
			w.st.Status = postdate.Cancelled
		}
		return true
	case 4: // release
		if w.m.is(c.id) {
			w.m = nil
		}
		return true
	}
	return false
}

// latecomer is a mark that was given up, and sent once more, before it arrived.
type latecomer struct{ id bson.ObjectID }

func (l *latecomer) step(w *world) bool {
	if w.st.Status == postdate.Pending && !w.st.PossibleDuplicate && w.m == nil {
		w.m = &mark{ID: l.id}
	}
	return true
}

func (c *canceller) look(w *world) bool {
	switch judge(c.p, sighting{playKey, playChannel, c.st, c.m}, c.id) {
	case verdictFinish:
		c.at = 3
		return false
	case verdictWait:
		return c.again()
	case verdictTooLate:
		w.refused++
	}
	c.at = 4
	return !c.m.is(c.id)
}

// again starts over, a few times: then it gives up, as a call whose time has run out.
func (c *canceller) again() bool {
	c.at = 0
	c.try++
	return c.try == 3
}

// owner looks where its page ends, claims, reads, and gets what it may publish, once for each
// claim. If first is set, it begins by acquiring the bucket from the other owner.
type owner struct {
	token  uint64
	first  bool
	claims []bucket.Claim // what they say of channels; To: where the look came to before anything else happened
	at     int
	to     bucket.Position
	seen   *postdate.State
	m      *mark
}

func (o *owner) step(w *world) bool {
	if len(o.claims) == 0 {
		o.claims = []bucket.Claim{{}}
	}
	claim := o.claims[0]
	switch o.at {
	case 0: // acquire
		o.at = 1
		if o.first {
			w.p, _ = w.p.Acquire(o.token-1, fmt.Sprint("owner-", o.token), "lease")
			return false
		}
		return o.step(w)
	case 1: // look: a page has room for one message
		o.at, o.to = 2, bucket.UpTo(playTo)
		if claim.To != (bucket.Position{}) {
			o.to = claim.To
			return o.step(w)
		}
		if o.takes(w, claim) {
			o.to = bucket.PositionOf(playKey, w.st.AttemptTime)
		}
	case 2: // claim
		claim.Token, claim.Number, claim.To = o.token, w.p.Claims+1, o.to
		next, err := w.p.Claim(claim)
		w.p = next
		o.at = 3
		return err != nil
	case 3: // read what is due
		if !o.takes(w, claim) {
			return o.ended()
		}
		st := w.st
		o.seen, o.m, o.at = &st, w.m, 4
		if meet(o.m, o.token) == meetTake {
			return o.publish(w)
		}
	case 4: // overtake
		if w.m != nil && w.m.ID == o.m.ID && w.st.Status == postdate.Pending {
			w.m = nil
			return o.publish(w)
		}
		o.at = 5
	case 5: // look once more
		if stillDue(*o.seen, w.st) {
			return o.publish(w)
		}
		return o.ended()
	}
	return false
}

// takes says whether a look or a read takes the message.
func (o *owner) takes(w *world, claim bucket.Claim) bool {
	at := bucket.PositionOf(playKey, w.st.AttemptTime)
	to, behind := claim.Behind[playChannel]
	return w.st.Status == postdate.Pending && !w.st.Parked && !o.to.Before(at) &&
		(claim.Only == playChannel || claim.Only == "" && (!behind || !to.Before(at)))
}

// publish ends the step: an owner does not ask again for what it was given.
func (o *owner) publish(w *world) bool {
	w.published = append(w.published, o.seen.Version)
	return true
}

// ended goes on to the next claim, if there is one.
func (o *owner) ended() bool {
	o.at, o.claims = 1, o.claims[1:]
	return len(o.claims) == 0
}

// settler settles an attempt by token's owner as to be retried later, which would let a cancel
// through.
type settler struct {
	token uint64
	at    int
	id    bson.ObjectID
	ok    bool
	wrote *bool
}

func (s *settler) step(w *world) bool {
	switch s.at {
	case 0: // mark
		s.id, s.at = bson.NewObjectID(), 1
		if w.st.Status != postdate.Pending || w.st.Version != 1 || w.m != nil && w.m.Token > int64(s.token) {
			return true
		}
		w.m = &mark{ID: s.id, Token: int64(s.token)}
	case 1: // look
		s.ok, s.at = w.p.Holds(s.token), 2
	case 2: // finish, or remove the mark
		if w.m.is(s.id) && w.st.Status == postdate.Pending {
			w.m = nil
			if s.ok {
				w.st.AttemptTime = playTo + 500
				*s.wrote = true
			}
		}
		return true
	}
	return false
}

// everyOrder runs the actors of each fresh scene in every order, and calls check at
// the end of each. It returns how many orders there were.
func everyOrder(scene func() (*world, []actor), check func(w *world, order []int)) int {
	count := 0
	var play func(order []int)
	play = func(order []int) {
		w, actors := scene()
		ended := make([]bool, len(actors))
		for _, a := range order {
			ended[a] = actors[a].step(w)
		}
		if !slices.Contains(ended, false) {
			count++
			check(w, order)
			return
		}
		for a := range actors {
			if !ended[a] {
				play(append(slices.Clip(order), a))
			}
		}
	}
	play(nil)
	return count
}

func TestEveryOrder(t *testing.T) {
	cancel := func(name string) actor { return &canceller{name: name} }
	replace := func(name string) actor { return &canceller{name: name, replace: true} }
	for _, scene := range []struct {
		name   string
		actors func(wrote *bool) []actor
		setUp  func(w *world)
	}{
		{"a cancel and a claim", func(*bool) []actor { return []actor{cancel("c"), &owner{token: 1}} }, nil},
		{"a cancel whose look reads the record first", func(*bool) []actor { return []actor{&canceller{name: "c", try: 1}, &owner{token: 1}} }, nil},
		{"a cancel whose mark was sent before, and a claim", func(*bool) []actor {
			return []actor{cancel("c"), &latecomer{bson.NewObjectID()}, &owner{token: 1}}
		}, nil},
		{"a replace and a claim", func(*bool) []actor { return []actor{replace("r"), &owner{token: 1}} }, nil},
		{"a cancel, a claim and its successor's", func(*bool) []actor {
			return []actor{cancel("c"), &owner{token: 1}, &owner{token: 2, first: true}}
		}, nil},
		{"a cancel, a replace and a claim", func(*bool) []actor {
			return []actor{cancel("c"), replace("r"), &owner{token: 1, claims: []bucket.Claim{{To: bucket.UpTo(playTo)}}}}
		}, nil},
		{"a former owner's settlement, its successor's claim, and a cancel", func(wrote *bool) []actor {
			return []actor{cancel("c"), &settler{token: 1, wrote: wrote}, &owner{token: 2, first: true}}
		}, func(w *world) { w.p.Claimed = bucket.UpTo(playTo) }},
		{"a cancel, and a claim whose page others fill, and the next one", func(*bool) []actor {
			return []actor{cancel("c"), &owner{token: 1, claims: []bucket.Claim{{To: playShort}, {}}}}
		}, nil},
		{"a cancel, a claim of other channels, and one of its own", func(*bool) []actor {
			return []actor{cancel("c"), &owner{token: 1, claims: []bucket.Claim{{Behind: playBehind}, {Only: playChannel, Behind: playBehind}}}}
		}, nil},
		{"a replace, a claim of other channels, and its successor's of all", func(*bool) []actor {
			return []actor{replace("r"), &owner{token: 1, claims: []bucket.Claim{{Behind: playBehind}}}, &owner{token: 2, first: true}}
		}, nil},
		{"a cancel of a parked message, which is unparked and claimed", func(*bool) []actor {
			return []actor{cancel("c"), unparker{}, &owner{token: 1}}
		}, func(w *world) { w.st.Parked = true }},
	} {
		t.Run(scene.name, func(t *testing.T) {
			var wrote bool
			both, neither := 0, 0
			n := everyOrder(func() (*world, []actor) {
				w := newWorld()
				wrote = false
				if scene.setUp != nil {
					scene.setUp(w)
				}
				return w, scene.actors(&wrote)
			}, func(w *world, order []int) {
				for name, version := range w.told {
					if slices.Contains(w.published, version) {
						both++
						t.Errorf("in the order %v %s was told that version %d is taken back, and it was published", order, name, version)
					}
				}
				if w.st.Status == postdate.Cancelled && len(w.told) == 0 {
					neither++
					t.Errorf("in the order %v the message is CANCELLED and nobody was told", order)
				}
				if w.st.Status == postdate.Pending && len(w.told) == 0 && len(w.published) == 0 && w.covered() && !wrote && w.st.AttemptTime <= playTo && !w.st.Parked && scene.setUp == nil {
					t.Errorf("in the order %v the message was neither taken back nor published, and a claim covers it", order)
				}
			})
			if n < 10 {
				t.Errorf("there were %d orders: that shows nothing", n)
			}
			t.Logf("%d orders", n)
		})
	}
}

// unparker makes a parked message due.
type unparker struct{}

func (unparker) step(w *world) bool {
	if w.st.Status == postdate.Pending && w.st.Parked {
		w.st.Parked, w.st.AttemptTime = false, playDue
	}
	return true
}

// TestWhatIsNotClaimedIsTakenBack plays claims that do not cover the message: its cancel is
// refused in no order, whatever time was asked for.
func TestWhatIsNotClaimedIsTakenBack(t *testing.T) {
	for name, claim := range map[string]bucket.Claim{
		"a page that others fill": {To: playShort},
		"other channels":          {Behind: playBehind},
		"another channel alone": {Only: "inbox:b", Behind: map[postdate.Route]bucket.Position{
			"inbox:b": bucket.UpTo(playClaimed), playChannel: bucket.UpTo(playClaimed),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			everyOrder(func() (*world, []actor) {
				return newWorld(), []actor{&canceller{name: "c"}, &owner{token: 1, claims: []bucket.Claim{claim}}}
			}, func(w *world, order []int) {
				if len(w.told) == 0 || w.refused > 0 || len(w.published) > 0 {
					t.Errorf("in the order %v: taken back %v, refused %d, published %v", order, w.told, w.refused, w.published)
				}
			})
		})
	}
}

// TestTheObviousWaysFail shows that the orders above would reveal a step that was left out.
func TestTheObviousWaysFail(t *testing.T) {
	for name, actors := range map[string]func(wrote *bool) []actor{
		"an owner that does not overtake": func(*bool) []actor {
			return []actor{&canceller{name: "c"}, &careless{owner{token: 1}}}
		},
		"a mark that is sent twice": func(*bool) []actor {
			id := bson.NewObjectID()
			return []actor{&canceller{name: "c", same: id}, &latecomer{id}, &owner{token: 1}}
		},
		"a settlement that does not mark": func(wrote *bool) []actor {
			return []actor{&canceller{name: "c"}, &hasty{token: 1, wrote: wrote}, &owner{token: 2, first: true}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var wrote bool
			caught := 0
			everyOrder(func() (*world, []actor) {
				w := newWorld()
				if name == "a settlement that does not mark" {
					w.p.Claimed = bucket.UpTo(playTo)
				}
				return w, actors(&wrote)
			}, func(w *world, _ []int) {
				for _, version := range w.told {
					if slices.Contains(w.published, version) {
						caught++
					}
				}
			})
			if caught == 0 {
				t.Error("no order shows the bug")
			}
		})
	}
}

// careless takes what it reads, marks or no marks.
type careless struct{ owner }

func (c *careless) step(w *world) bool {
	if c.at == 4 {
		return c.publish(w)
	}
	return c.owner.step(w)
}

// hasty looks first, and then writes.
type hasty struct {
	token uint64
	at    int
	ok    bool
	wrote *bool
}

func (h *hasty) step(w *world) bool {
	if h.at++; h.at == 1 {
		h.ok = w.p.Holds(h.token)
		return !h.ok
	}
	if w.st.Status == postdate.Pending && w.st.Version == 1 {
		w.st.AttemptTime, w.m = playTo+500, nil
	}
	return true
}
