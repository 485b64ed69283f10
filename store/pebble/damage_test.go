package pebble

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

const (
	damageMessages = 300
	damageChannels = 20
)

// damageMessage is a message that hardly compresses, so that a table has many blocks.
func damageMessage(i int) postdate.Message {
	m := openMessage(i)
	m.Channel = postdate.Channel(fmt.Sprintf("inbox:%d-%0200d", i%damageChannels, i%damageChannels))
	m.Payload = make([]byte, 700)
	r := rand.New(rand.NewPCG(7, uint64(i)))
	for j := range m.Payload {
		m.Payload[j] = byte(r.Uint32())
	}
	return m
}

// damageable makes a store with messages, half of them parked, all in one table, and returns
// the table's name.
func damageable(t *testing.T, dir string) (table string) {
	t.Helper()
	s, err := Open(openConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	acquireAll(t, s)
	var park []store.Settlement
	for i := range damageMessages {
		m := damageMessage(i)
		if err := s.Insert(t.Context(), []postdate.Message{m})[0].Err; err != nil {
			t.Fatal(err)
		}
		if r, err := s.Get(t.Context(), m.Key); err != nil {
			t.Fatal(err)
		} else if i%2 == 0 {
			park = append(park, store.Settlement{Key: r.Key, Version: r.Version, Token: 1, How: store.SettlePark, At: 1, AttemptTime: m.ExecutionTime, DownSince: 5})
		}
	}
	if err := s.Settle(t.Context(), park); err != nil {
		t.Fatal(err)
	}
	if err := s.db.Compact(t.Context(), []byte{0}, []byte{255}, false); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) != 1 {
		t.Fatal(tables, err)
	}
	return tables[0]
}

// lists reads all pages of the list of messages, and what is parked.
func lists(t *testing.T, s *Store) (listed []string, listErr error, parked []string, parkedErr error) {
	q := store.ListQuery{Tenant: postdate.DefaultTenant, Limit: 37}
	for {
		page, err := s.List(t.Context(), q)
		if err != nil {
			listErr = err
			break
		}
		for _, r := range page.Records {
			listed = append(listed, r.ScheduleID)
		}
		if q.After = page.Next; q.After == nil {
			break
		}
	}
	var all []int
	for b := range openBuckets {
		all = append(all, b)
	}
	found, parkedErr := s.Parked(t.Context(), all)
	for _, f := range found {
		parked = append(parked, fmt.Sprint(f.Bucket, f.Route))
	}
	return listed, listErr, parked, parkedErr
}

// What a damaged block hides is an error, and never left out in silence.
func TestListsBesideADamagedBlock(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "store")
	table := damageable(t, whole)
	open := func(dir string) *Store {
		t.Helper()
		s, err := OpenWith(openConfig(dir), Parts{Fatal: func(err error) { panic(err) }})
		if err != nil {
			return nil // the damage was found at once
		}
		return s
	}
	s := open(whole)
	listed, _, parked, _ := lists(t, s)
	s.Close()
	if len(listed) != damageMessages || len(parked) < damageChannels {
		t.Fatalf("the whole store shows %d messages, and %d channels", len(listed), len(parked))
	}
	b, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	failedLists, failedParked := 0, 0
	for at := 100; at < len(b); at += len(b) / 40 {
		dir := filepath.Join(t.TempDir(), "store")
		if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
		damaged := bytes.Clone(b)
		damaged[at] ^= 0xff
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(table)), damaged, 0o644); err != nil {
			t.Fatal(err)
		}
		s := open(dir)
		if s == nil {
			continue
		}
		l, listErr, p, parkedErr := lists(t, s)
		s.Close()
		switch {
		case listErr != nil:
			failedLists++
		case !slices.Equal(l, listed):
			t.Errorf("byte %d of %d: the list has %d messages of %d, and no error", at, len(b), len(l), len(listed))
		}
		switch {
		case parkedErr != nil:
			failedParked++
		case !slices.Equal(p, parked):
			t.Errorf("byte %d of %d: %d channels are parked of %d, and no error", at, len(b), len(p), len(parked))
		}
	}
	if failedLists == 0 || failedParked == 0 {
		t.Errorf("%d lists failed, and %d reads of what is parked: the damage was elsewhere", failedLists, failedParked)
	}
}

// A damaged table in the first level cannot be merged, and neither can what comes after it: in
// the end every write would wait for ever. The store fails as a whole before that, and says why.
func TestADamagedTableThatStopsMerging(t *testing.T) {
	dir := leftOpen(t)
	c := openConfig(dir)
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := s.Insert(t.Context(), []postdate.Message{damageMessage(i)})[0].Err; err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	damage(t, dir, "*.sst", 0.5)
	c.Log = slog.New(slog.DiscardHandler)
	fatal := make(chan error, 1)
	s, err = OpenWith(c, Parts{Fatal: func(err error) { fatal <- err; select {} }})
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan struct{})
	go func() { // it hangs in the end, as the store does
		defer close(written)
		for i := 100; i < 10_000; i++ {
			_ = s.db.Set(messageKey(nil, damageMessage(i%100).Key, postdate.Time(i)), []byte("x"), lsm.NoSync)
			_ = s.db.Set(messageKey(nil, damageMessage((i+50)%100).Key, postdate.Time(2_000_000_000_000+i)), []byte("x"), lsm.NoSync)
			_ = s.db.Flush()
		}
	}()
	var text string
	select {
	case err := <-fatal:
		text = err.Error()
	case <-written:
	}
	if !strings.Contains(text, "damaged table") || !strings.Contains(text, "restore the directory from a backup") {
		t.Errorf("it gives up with %q", text)
	}
}
