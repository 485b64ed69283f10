package mongo

import (
	"context"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// moving is a store behind a mongos whose messages can be taken away, as a reschedule does
// while it moves them between shards: their ids stay taken.
type moving struct {
	*testing.T
	s      *Store
	before atomic.Pointer[func(*event.CommandStartedEvent)] // each command
	after  atomic.Pointer[func(*event.CommandSucceededEvent)]
}

func openMoving(t *testing.T) *moving {
	m := &moving{T: t}
	c, _ := behindRouter(t)
	monitor := &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if f := m.before.Load(); f != nil {
				(*f)(e)
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			if f := m.after.Load(); f != nil {
				(*f)(e)
			}
		},
	}
	var err error
	if m.s, err = OpenWatched(t.Context(), c, monitor); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.s.Close() })
	return m
}

// leave takes a message away.
func (m *moving) leave(key postdate.Key) {
	if r, err := m.s.messages.DeleteOne(context.Background(), target{key: key, execution: 1000}.shardKey()); err != nil || r.DeletedCount != 1 {
		m.Errorf("DeleteOne: %+v, %v", r, err)
	}
}

// leaveAt takes a message away right before the first command that is chosen.
func (m *moving) leaveAt(key postdate.Key, chosen func(e *event.CommandStartedEvent) bool) {
	f := func(e *event.CommandStartedEvent) {
		if chosen(e) {
			m.before.Store(nil)
			m.leave(key)
		}
	}
	m.before.Store(&f)
}

func on(e *event.CommandStartedEvent, command, collection string) bool {
	name, _ := e.Command.Lookup(command).StringValueOK()
	return name == collection
}

func (m *moving) want(what string, err error, kind postdate.Kind) {
	m.Helper()
	if postdate.KindOf(err) != kind {
		m.Errorf("%s: %v; want %v", what, err, kind)
	}
}

// TestNobodyIsToldThatAMovingMessageIsNotThere: a message moves for longer than a read waits.
// Calls that need it say that they do not know, and do what they can for the other messages.
func TestNobodyIsToldThatAMovingMessageIsNotThere(t *testing.T) {
	m := openMoving(t)
	all := insertInBucket(t, m.s, 1, 4)
	away, stays, mine := all[0], all[1], all[2]
	m.leave(away.Key)
	_, err := m.s.Get(t.Context(), away.Key)
	m.want("Get", err, postdate.KindUnavailable)
	_, err = storetest.Replace(t.Context(), m.s, away, 1)
	m.want("Replace", err, postdate.KindUnavailable)
	m.want("Insert", m.s.Insert(t.Context(), []postdate.Message{away})[0].Err, postdate.KindUnavailable)
	r := m.s.Cancel(t.Context(), []postdate.Key{away.Key, stays.Key}, 5)
	m.want("Cancel", r[0].Err, postdate.KindUnavailable)
	if r[1].Err != nil || !r[1].Changed {
		t.Errorf("Cancel of a message beside it: %+v", r[1])
	}

	// A cancel that may have been written.
	updates := 0
	m.leaveAt(mine.Key, func(e *event.CommandStartedEvent) bool {
		if on(e, "update", "messages") {
			updates++
		}
		return updates == 2 // the first one marks
	})
	m.want("Cancel that was under way", m.s.Cancel(t.Context(), []postdate.Key{mine.Key}, 5)[0].Err, postdate.KindUnknown)
}

// TestAReadThatEndsWhileAMessageMoves: its time runs out while it waits for the message.
func TestAReadThatEndsWhileAMessageMoves(t *testing.T) {
	m := openMoving(t)
	away := insertInBucket(t, m.s, 1, 1)[0]
	m.leave(away.Key)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asked atomic.Int64
	before := func(e *event.CommandStartedEvent) {
		if on(e, "find", "registry") {
			asked.Store(e.RequestID)
		}
	}
	after := func(e *event.CommandSucceededEvent) {
		if e.RequestID == asked.Load() {
			cancel()
		}
	}
	m.before.Store(&before)
	m.after.Store(&after)
	_, err := m.s.Get(ctx, away.Key)
	m.want("Get", err, postdate.KindUnavailable)
}

// TestAClaimSaysThatItLeftOutAMovingMessage: otherwise the checkpoint would pass it.
func TestAClaimSaysThatItLeftOutAMovingMessage(t *testing.T) {
	m := openMoving(t)
	large := postdate.Message{Key: bucket.KeyOf("default", "large", 8), Channel: "inbox:a", ExecutionTime: 1000, Payload: make([]byte, payloadInlineMax+1)}
	marked := insertInBucket(t, m.s, 1, 1)[0]
	if r := m.s.Insert(t.Context(), []postdate.Message{large})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	err := m.s.within(t.Context(), func(ctx context.Context) error {
		return m.s.withdrawal().markAll(ctx, []target{{key: marked.Key, execution: 1000}}, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []struct {
		message postdate.Message
		at      func(e *event.CommandStartedEvent) bool
	}{
		{marked, func(e *event.CommandStartedEvent) bool { return on(e, "update", "messages") }}, // its mark is removed
		{large, func(e *event.CommandStartedEvent) bool {
			_, reads := e.Command.Lookup("filter", "_id").StringValueOK()
			return on(e, "find", "messages") && reads // its payload is read
		}},
	} {
		b := left.message.Bucket
		if got, err := m.s.Acquire(t.Context(), []store.Acquisition{{Bucket: b, Owner: "n", Lease: "l"}}); err != nil || !got[0].OK {
			t.Fatalf("Acquire: %+v, %v", got, err)
		}
		m.leaveAt(left.message.Key, left.at)
		r := m.s.Claim(t.Context(), []store.Claim{{
			Bucket: b, Claim: bucket.Claim{Token: 1, Number: 1, To: bucket.UpTo(1000)}, Scan: store.Scan{Limit: 10, BytesMax: 1 << 20},
		}})[0]
		if want := bucket.PositionOf(left.message.Key, 1000); r.Err != nil || len(r.Due) != 0 || r.LeftOut != want {
			t.Errorf("%s: %+v; want it left out at %v", left.message.ScheduleID, r, want)
		}
	}
}
