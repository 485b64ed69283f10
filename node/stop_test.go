package node_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// lingering is a store whose expiry continues for a while after it is told to end.
type lingering struct {
	*storetest.Mem
	first   sync.Once
	begun   chan struct{} // closed when the first expiry begins
	under   atomic.Int64
	atClose atomic.Int64 // how many were under way when the store was closed
}

func (s *lingering) Expire(ctx context.Context, e store.Expiry) (int, error) {
	s.under.Add(1)
	defer s.under.Add(-1)
	s.first.Do(func() { close(s.begun) })
	<-ctx.Done()
	<-time.After(100 * time.Millisecond) // a store closed too early is closed within this time
	return s.Mem.Expire(ctx, e)
}

func (s *lingering) Close() error {
	s.atClose.Store(s.under.Load())
	return s.Mem.Close()
}

// A stop closes the store only when nothing reads it any more: the embedded store's files must
// not disappear during a read.
func TestStopWaitsForTheStoresCalls(t *testing.T) {
	s := &lingering{Mem: storetest.NewMem(4), begun: make(chan struct{})}
	s.Clock = func() postdate.Time { return postdate.WallOf(time.Now()) }
	n, err := node.StartWith(patient(t), config(t), node.Parts{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.begun:
	case <-time.After(patience):
		t.Error("nothing expires")
	}
	if err := n.Stop(patient(t)); err != nil {
		t.Error(err)
	}
	if calls := s.atClose.Load(); calls != 0 {
		t.Errorf("the store was closed with %d calls under way", calls)
	}
}

// hanging is a store that answers no renewal until it is closed, like one whose disk is
// completely full.
type hanging struct {
	*storetest.Mem
	asked  func()
	closed chan struct{}
}

func (s hanging) Renew(context.Context, bucket.Lease) (postdate.Time, error) {
	s.asked()
	<-s.closed
	return 0, postdate.E(postdate.KindUnknown, "the store was closed")
}

func (s hanging) Close() error {
	close(s.closed)
	return s.Mem.Close()
}

// A start that is given up ends, whatever hangs.
func TestStartEndsThoughItsStoreHangs(t *testing.T) {
	ctx, giveUp := context.WithCancel(t.Context())
	s := hanging{storetest.NewMem(4), giveUp, make(chan struct{})}
	c := config(t)
	ended := make(chan error, 1)
	go func() {
		_, err := node.StartWith(ctx, c, node.Parts{Store: s})
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it started")
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
}
