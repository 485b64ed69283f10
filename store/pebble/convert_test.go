package pebble

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// A version before may have put messages into inboxes without settling them, as its claims say: they are marked
// once, when its store is opened. Nothing else is.
func TestOpenAStoreWithDoubts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := Open(openConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	acquireAll(t, s)
	marked := map[postdate.Key]bool{}
	add := func(id string, channel postdate.Channel, at postdate.Time, doubtful bool) postdate.Key {
		t.Helper()
		m := openMessage(0)
		m.Key = bucket.KeyOf("t", id, openBuckets)
		m.ScheduleID, m.Channel, m.ExecutionTime = id, channel, at
		if err := s.Insert(t.Context(), []postdate.Message{m})[0].Err; err != nil {
			t.Fatal(err)
		}
		marked[m.Key] = doubtful
		return m.Key
	}
	for i := range 40 { // some in each bucket
		add(fmt.Sprint("claimed-", i), "inbox:x", 5000, true)
		add(fmt.Sprint("settled-", i), "inbox:x", 2000, false)
		add(fmt.Sprint("later-", i), "inbox:x", 5001, false)
		add(fmt.Sprint("behind-", i), "inbox:slow", 4500, false)
		add(fmt.Sprint("other-", i), "rabbitmq:x", 5000, false)
	}
	parked := add("parked", "inbox:x", 4000, false)
	for b := range openBuckets {
		c := store.Claim{Bucket: b, Scan: store.Scan{Limit: 1000, BytesMax: 1 << 20}}
		c.Token, c.Number, c.Checkpoint, c.To = 1, 1, 3000, bucket.UpTo(5000)
		c.Behind = map[postdate.Route]bucket.Position{postdate.RouteOf("t", "inbox:slow"): bucket.UpTo(4000)}
		if r := s.Claim(t.Context(), []store.Claim{c}); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
	}
	if err := s.Settle(t.Context(), []store.Settlement{settlementOf(t, s, parked, store.SettlePark, store.Next{})}); err != nil {
		t.Fatal(err)
	}
	usage := s.pending.All()
	s.Close()
	opensFormer(t, dir, layoutDelivers-1)
	for range 2 {
		if s, err = Open(openConfig(dir)); err != nil {
			t.Fatal(err)
		}
		for key, want := range marked {
			rec, err := s.Get(t.Context(), key)
			if err != nil || rec.PossibleDuplicate != want || rec.Status != postdate.Pending {
				t.Errorf("%s: %+v, %v; want it marked: %v", key.ScheduleID, rec.State, err, want)
			}
		}
		if now := s.pending.All(); fmt.Sprint(now) != fmt.Sprint(usage) {
			t.Errorf("pending was %+v, and is %+v", usage, now)
		}
		wantDueMarked(t, s, marked)
		s.Close()
	}
}

// wantDueMarked expects that whoever reads what is due sees the same marks.
func wantDueMarked(t *testing.T, s *Store, marked map[postdate.Key]bool) {
	t.Helper()
	found := 0
	for b := range openBuckets {
		p := s.partition(b)
		c := store.Claim{Bucket: b, Scan: store.Scan{Limit: 1000, BytesMax: 1 << 20}}
		c.Token, c.Number, c.Checkpoint, c.To = p.Token, p.Claims+1, p.Checkpoint, bucket.UpTo(9000)
		r := s.Claim(t.Context(), []store.Claim{c})[0]
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		found += len(r.Due)
		for _, rec := range r.Due {
			if rec.PossibleDuplicate != marked[rec.Key] {
				t.Errorf("%s is read with the mark %v", rec.ScheduleID, rec.PossibleDuplicate)
			}
		}
	}
	if found != len(marked) {
		t.Errorf("%d messages are due, want %d", found, len(marked))
	}
}

// formerInDoubt is a store of the layout before in one table, all of whose messages are in doubt.
func formerInDoubt(t *testing.T, dir string) {
	t.Helper()
	s, err := Open(openConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	acquireAll(t, s)
	for i := range damageMessages {
		if err := s.Insert(t.Context(), []postdate.Message{damageMessage(i)})[0].Err; err != nil {
			t.Fatal(err)
		}
	}
	for b := range openBuckets {
		c := store.Claim{Bucket: b, Scan: store.Scan{Limit: 1000, BytesMax: 1 << 20}}
		c.Token, c.Number, c.Checkpoint, c.To = 1, 1, 3000, bucket.UpTo(1_900_000_009_000)
		if r := s.Claim(t.Context(), []store.Claim{c}); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
	}
	v, closer, err := s.db.Get([]byte{spaceBirth})
	if err != nil {
		t.Fatal(err)
	}
	v = bytes.Clone(v)
	closer.Close()
	if err := s.db.Set([]byte{spaceBirth}, sealBirth(append([]byte{layoutDelivers - 1}, v[1:9]...)), lsm.Sync); err != nil {
		t.Fatal(err)
	}
	if err := s.db.Compact(t.Context(), []byte{0}, []byte{255}, false); err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// A read that fails while a store is converted leaves no message unmarked: the next start tries again.
func TestConvertWithAFailedRead(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "store")
	formerInDoubt(t, whole)
	for k := int64(1); k < 60; k++ {
		dir := filepath.Join(t.TempDir(), "store")
		if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
		var reads atomic.Int64
		c := openConfig(dir)
		fs := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") && reads.Add(1) == k {
				return errorfs.ErrInjected
			}
			return nil
		}))
		s, err := OpenWith(c, Parts{FS: fs, Fatal: func(err error) { panic(err) }})
		if err != nil {
			continue
		}
		if reads.Load() < k {
			s.Close()
			break // no read failed before it was open
		}
		reads.Store(1 << 40)
		unmarked := 0
		for i := range damageMessages {
			rec, err := s.Get(t.Context(), damageMessage(i).Key)
			if err != nil || !rec.PossibleDuplicate {
				unmarked++
			}
		}
		if unmarked > 0 {
			t.Errorf("read %d failed: the store is opened, and %d messages are without their mark", k, unmarked)
		}
		s.Close()
	}
}

// A store from before messages could be moved is opened, and refused by versions of its layout from then on.
func TestOpenAStoreWithoutMoves(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := Open(openConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	m := openMessage(0)
	if err := s.Insert(t.Context(), []postdate.Message{m})[0].Err; err != nil {
		t.Fatal(err)
	}
	s.Close()
	opensFormer(t, dir, 12) // layout 13 has messages of layoutMoved
	if s, err = Open(openConfig(dir)); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, err := s.Get(t.Context(), m.Key); err != nil || got.Moved != (postdate.Move{}) || string(got.Payload) != string(m.Payload) {
		t.Errorf("%+v, %v", got, err)
	}
}
