package mongo

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// TestDeposedPrimary stops the primary until another one is elected, and asks it as soon as it
// continues, before it knows. A process that has seen what was written meanwhile does not
// believe the deposed primary's data; nor does a claim, because its write needs a majority.
//
// With POSTDATE_TEST_EXPERIMENTS set, it also shows the answer to a read that is tied to
// nothing that this process saw: the message as it was, PENDING.
func TestDeposedPrimary(t *testing.T) {
	set := mongotest.Start(t, 3)
	uri := set.Fresh()
	c := DefaultConfig(uri)
	c.Buckets, c.Attempt, c.Timeout, c.Select = 4, 3*time.Second, 2*time.Minute, time.Minute // an election may take its time
	now, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	old := set.Primary()
	m := postdate.Message{Key: bucket.KeyOf("default", "a", 4), Channel: "inbox:a", ExecutionTime: 1000}
	if r := now.Insert(t.Context(), []postdate.Message{m})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	if got, err := now.Acquire(t.Context(), []store.Acquisition{{Bucket: m.Bucket, Owner: "n", Lease: "l"}}); err != nil || !got[0].OK {
		t.Fatalf("Acquire: %+v, %v", got, err)
	}
	name := now.messages.Database().Name()
	direct := c
	direct.URI = "mongodb://" + set.Address(old) + "/" + name + "?directConnection=true&heartbeatFrequencyMS=600000"
	direct.Attempt = 30 * time.Second // what waits in its sockets is not given up
	open := func() *Store {
		s, err := Open(t.Context(), direct)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), m.Key); err != nil { // its connection stands
			t.Fatal(err)
		}
		return s
	}
	knows, knowsNot, owner := open(), open(), open()
	for _, s := range []*Store{knows, knowsNot, owner} {
		defer s.Close()
	}

	set.Stop(old)
	if r := now.Cancel(t.Context(), []postdate.Key{m.Key}, 7)[0]; r.Err != nil {
		t.Fatalf("Cancel through the next primary: %v", r.Err)
	}
	knows.saw(now.latest())
	tied, loose := ask(knows, m.Key), ask(knowsNot, m.Key)
	claimed := make(chan store.ClaimResult, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		claimed <- owner.Claim(ctx, []store.Claim{{
			Bucket: m.Bucket, Claim: bucket.Claim{Token: 1, Number: 1, To: bucket.UpTo(2000)},
			Scan: store.Scan{Limit: 10, BytesMax: 1 << 20},
		}})[0]
	}()
	time.Sleep(200 * time.Millisecond) // they lie in its sockets; without it the test shows less
	set.Cont(old)

	if a := <-tied; a.err == nil && a.rec.Status == postdate.Pending {
		t.Error("a process that saw the cancel read the message PENDING from a deposed primary")
	} else {
		t.Logf("tied to what was seen: %v, %v", a.rec.Status, a.err)
	}
	if r := <-claimed; r.Err == nil && len(r.Due) > 0 {
		t.Error("a claim through a deposed primary read a message whose cancel was answered with nil")
	} else {
		t.Logf("a claim: %v", r.Err)
	}
	if a := <-loose; os.Getenv("POSTDATE_TEST_EXPERIMENTS") != "" {
		t.Logf("tied to nothing: %v, %v", a.rec.Status, a.err)
	}
}

// answer is what a read answered.
type answer struct {
	rec postdate.Record
	err error
}

// ask reads a message, without waiting for it.
func ask(s *Store, key postdate.Key) chan answer {
	c := make(chan answer, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		rec, err := s.Get(ctx, key)
		c <- answer{rec, err}
	}()
	return c
}
