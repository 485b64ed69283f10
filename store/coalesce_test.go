package store_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

func TestCoalesced(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return store.Coalesce(storetest.NewMem(8)) })
}

// held is a store whose Insert waits until it is let go, and notes its calls.
type held struct {
	store.Store
	entered chan int // messages of each call, as it begins
	letGo   chan struct{}
}

func (h *held) Insert(ctx context.Context, ms []postdate.Message) []store.Inserted {
	h.entered <- len(ms)
	<-h.letGo
	return h.Store.Insert(ctx, ms)
}

func message(i int) []postdate.Message {
	return []postdate.Message{{Key: bucket.KeyOf("default", fmt.Sprint("m", i), 8), Channel: "inbox:a", ExecutionTime: 1}}
}

// Calls that come while one is under way become one call. A caller that gives up before its
// call begins gets "not done"; one that gives up later gets "unknown".
func TestCallsGather(t *testing.T) {
	inner := &held{Store: storetest.NewMem(8), entered: make(chan int, 9), letGo: make(chan struct{})}
	s := store.Coalesce(inner)
	first, giveUpFirst := context.WithCancel(context.Background())
	begun := make(chan store.Inserted, 1)
	go func() { begun <- s.Insert(first, message(0))[0] }()
	<-inner.entered
	giveUpFirst()
	if r := <-begun; postdate.KindOf(r.Err) != postdate.KindUnknown {
		t.Errorf("a call given up on its way: %v, want KindUnknown", r.Err)
	}
	var waiting sync.WaitGroup
	second, giveUpSecond := context.WithCancel(context.Background())
	waiting.Go(func() {
		if r := s.Insert(second, message(1))[0]; postdate.KindOf(r.Err) != postdate.KindUnavailable {
			t.Errorf("a call given up before it began: %v, want KindUnavailable", r.Err)
		}
	})
	giveUpSecond()
	waiting.Wait()
	for i := range 5 {
		waiting.Go(func() {
			if r := s.Insert(context.Background(), message(2+i))[0]; r.Err != nil || !r.Created {
				t.Errorf("call %d: %+v", i, r)
			}
		})
	}
	total := 0
	for total < 5 {
		inner.letGo <- struct{}{}
		total += <-inner.entered
	}
	close(inner.letGo)
	waiting.Wait()
	if _, err := s.Get(context.Background(), message(1)[0].Key); postdate.KindOf(err) != postdate.KindNotFound {
		t.Errorf("what was given up before it began is there: %v", err)
	}
	if _, err := s.Get(context.Background(), message(0)[0].Key); err != nil {
		t.Errorf("what was under way was dropped: %v", err)
	}
}

// late is a store whose Insert goes on until its context ends, and which must not be closed
// before.
type late struct {
	store.Store
	entered chan struct{}
	under   atomic.Int32 // calls
	t       *testing.T
}

func (l *late) Insert(ctx context.Context, ms []postdate.Message) []store.Inserted {
	l.under.Add(1)
	defer l.under.Add(-1)
	close(l.entered)
	<-ctx.Done()
	return l.Store.Insert(ctx, ms)
}

func (l *late) Close() error {
	if n := l.under.Load(); n > 0 {
		l.t.Errorf("closed with %d calls under way", n)
	}
	return l.Store.Close()
}

// A call goes on when its caller has left. Close ends it, and closes the store after that.
func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	inner := &late{Store: storetest.NewMem(8), entered: make(chan struct{}), t: t}
	s := store.Coalesce(inner)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() { s.Insert(ctx, message(0)); close(left) }()
	<-inner.entered
	leave()
	<-left
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
