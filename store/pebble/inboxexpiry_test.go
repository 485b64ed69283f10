package pebble

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// inboxStore opens a store of one bucket on a disk.
func inboxStore(t *testing.T, disk vfs.FS) *Store {
	t.Helper()
	c := DefaultConfig("store")
	c.Buckets = 1
	s, err := OpenWith(c, Parts{FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lay appends messages to an inbox that were delivered at these times.
func lay(t *testing.T, s *Store, name string, delivered ...postdate.Time) {
	t.Helper()
	var all []store.InboxMessage
	for _, at := range delivered {
		all = append(all, store.InboxMessage{Tenant: "t", Inbox: name, ScheduleID: fmt.Sprint("at-", at), DeliveredAt: at})
	}
	if err := s.AppendInbox(t.Context(), all); err != nil {
		t.Error(err)
	}
}

// follow reads on from a cursor, expects messages that were delivered at these times, and
// returns the next cursor.
func follow(t *testing.T, s *Store, name, cursor string, delivered ...postdate.Time) string {
	t.Helper()
	got, next, err := s.ReadInbox(t.Context(), "t", name, cursor, 100)
	if err != nil {
		t.Fatalf("inbox %s behind %q: %v", name, cursor, err)
	}
	var times []postdate.Time
	for _, m := range got {
		times = append(times, m.DeliveredAt)
	}
	if fmt.Sprint(times) != fmt.Sprint(delivered) {
		t.Errorf("inbox %s behind %q holds %v, want %v", name, cursor, times, delivered)
	}
	return next
}

func expireBefore(t *testing.T, s *Store, before postdate.Time) int {
	t.Helper()
	n, err := s.Expire(t.Context(), store.Expiry{Buckets: []int{0}, DeliveredBefore: before, Limit: 1_000_000})
	if err != nil {
		t.Error(err)
	}
	return n
}

// keysIn counts what a space holds.
func keysIn(t *testing.T, s *Store, space byte) (n int) {
	t.Helper()
	iter, err := s.db.NewIter(spaceOnly(space))
	if err != nil {
		t.Fatal(err)
	}
	defer iter.Close()
	for ok := iter.First(); ok; ok = iter.Next() {
		n++
	}
	return n
}

// The cost of expiry depends on what expires, not on how many inboxes there are.
func TestExpiryLooksAtWhatExpires(t *testing.T) {
	s := inboxStore(t, vfs.NewMem())
	defer s.Close()
	for i := range 1_000 {
		lay(t, s, fmt.Sprint("young-", i), 2000)
	}
	lay(t, s, "old", 500, 700, 2000)
	e := &store.Expiry{Buckets: []int{0}, DeliveredBefore: 1000, Limit: 100}
	iter, err := s.db.NewIter(&lsm.IterOptions{LowerBound: []byte{spaceInboxOrder}, UpperBound: appendTime([]byte{spaceInboxOrder}, 1000)})
	if err != nil {
		t.Fatal(err)
	}
	defer iter.Close()
	if old, _ := s.listedIn(iter, e); len(old) != 1 || old[0].ScheduleID != "old" {
		t.Errorf("expiry looks at %v, want the one inbox that holds something old", old)
	}
	if stats := iter.Stats(); stats.InternalStats.PointCount > 3 {
		t.Errorf("with a thousand inboxes in which nothing expires it steps over %d keys", stats.InternalStats.PointCount)
	}
	if n := expireBefore(t, s, 1000); n != 2 {
		t.Errorf("%d messages expired, want 2", n)
	}
	follow(t, s, "old", "", 2000)
}

// An inbox whose messages expired leaves nothing behind, and what comes later is after every
// cursor that was given out, even after a restart.
func TestEmptyInboxesLeaveNothing(t *testing.T) {
	disk := vfs.NewMem()
	s := inboxStore(t, disk)
	cursors := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		lay(t, s, name, 1, 2)
	}
	lay(t, s, "a", 3, 4, 5)
	cursors["a"] = follow(t, s, "a", "", 1, 2, 3, 4, 5)
	cursors["b"] = follow(t, s, "b", "", 1, 2)
	cursors["d"] = follow(t, s, "d", "")
	if n := expireBefore(t, s, 1000); n != 9 {
		t.Errorf("%d messages expired, want 9", n)
	}
	for _, space := range []byte{spaceInbox, spaceInboxOrder, spaceInboxTail} {
		if n := keysIn(t, s, space); n != 0 {
			t.Errorf("%d keys of empty inboxes are left in space %c", n, space)
		}
	}
	lay(t, s, "b", 2000)
	for range 2 {
		cursors["a"], cursors["c"] = follow(t, s, "a", cursors["a"]), follow(t, s, "c", "")
		follow(t, s, "b", cursors["b"], 2000)
		follow(t, s, "b", "", 2000)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = inboxStore(t, disk)
	}
	defer s.Close()
	for name, cursor := range cursors {
		lay(t, s, name, 3000)
		want := []postdate.Time{3000}
		if name == "b" {
			want = []postdate.Time{2000, 3000}
		}
		follow(t, s, name, cursor, want...)
	}
	if n := expireBefore(t, s, 2500); n != 1 {
		t.Errorf("%d messages expired, want 1", n)
	}
}

// However many inboxes are used, few are kept in memory; one that was forgotten goes on from
// where it ended.
func TestInboxesAreForgotten(t *testing.T) {
	s := inboxStore(t, vfs.NewMem())
	defer s.Close()
	lay(t, s, "first", 1, 2)
	cursor := follow(t, s, "first", "", 1, 2)
	for i := range inboxesMax + 500 {
		lay(t, s, fmt.Sprint("inbox-", i), 1)
		follow(t, s, fmt.Sprint("nobody-", i), "")
	}
	if n := len(s.inboxes); n > inboxesMax {
		t.Errorf("%d inboxes are kept in memory, want at most %d", n, inboxesMax)
	}
	for len(s.inboxes) > 0 {
		s.forgetInbox()
	}
	follow(t, s, "first", cursor)
	lay(t, s, "first", 3)
	follow(t, s, "first", cursor, 3)
	follow(t, s, "first", "", 1, 2, 3)
}

// What comes to an inbox while it expires is not missed by later expiry.
func TestExpiryBesideAppends(t *testing.T) {
	const writers, each = 4, 300
	s := inboxStore(t, vfs.NewMem())
	defer s.Close()
	var group sync.WaitGroup
	done, expired := make(chan struct{}), 0
	for w := range writers {
		group.Go(func() {
			for i := range each {
				lay(t, s, fmt.Sprint("inbox-", (w+i)%3), 1)
			}
		})
	}
	go func() { group.Wait(); close(done) }()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		expired += expireBefore(t, s, 1000)
		s.inboxMu.Lock()
		s.forgetInbox()
		s.inboxMu.Unlock()
	}
	if expired != writers*each || keysIn(t, s, spaceInbox) != 0 || keysIn(t, s, spaceInboxOrder) != 0 {
		t.Errorf("%d of %d messages expired; %d are left, and %d inboxes are listed", expired, writers*each, keysIn(t, s, spaceInbox), keysIn(t, s, spaceInboxOrder))
	}
}

// A store of an earlier version has no order and no floor, but the last number of each inbox in
// which something expired. It opens, and its cursors go on.
func TestInboxesOfAnEarlierVersion(t *testing.T) {
	disk := vfs.NewMem()
	s := inboxStore(t, disk)
	lay(t, s, "empty", 1, 2, 3)
	lay(t, s, "used", 1, 2, 3, 2000)
	empty, used := follow(t, s, "empty", "", 1, 2, 3), follow(t, s, "used", "", 1, 2, 3, 2000)
	old := s.db.NewBatch()
	tail := func(name string) []byte {
		k := inboxPrefix(nil, "t", name)
		k[0] = spaceInboxTail
		return k
	}
	for _, name := range []string{"empty", "used"} {
		old.DeleteRange(inboxKey(nil, "t", name, 1), inboxKey(nil, "t", name, 4), nil)
		old.Set(tail(name), binary.AppendUvarint(nil, 3), nil)
	}
	old.DeleteRange([]byte{spaceInboxOrder}, []byte{spaceInboxOrder + 1}, nil)
	birth := appendBirth(nil, 1, s.birth)
	birth[0] = layout
	old.Set([]byte{spaceBirth}, sealBirth(birth[:9]), nil)
	if err := old.Commit(lsm.Sync); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = inboxStore(t, disk)
	}
	defer s.Close()
	if n := keysIn(t, s, spaceInboxTail); n != 0 {
		t.Errorf("%d last numbers of the earlier version are left", n)
	}
	follow(t, s, "empty", empty)
	follow(t, s, "used", used)
	lay(t, s, "empty", 3000)
	lay(t, s, "used", 3000)
	follow(t, s, "empty", empty, 3000)
	follow(t, s, "used", used, 3000)
	if n := expireBefore(t, s, 2500); n != 1 {
		t.Errorf("%d messages expired, want 1", n)
	}
	follow(t, s, "used", "", 3000)
}
