package mongo

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/postdate/postdate/store/mongo/mongotest"
)

// A node of a new version starts on a large store: the server is given more time to build an index than a call may take.
// It gives the build up when that time is over.
func TestIndexesMayTakeLongToBuild(t *testing.T) {
	var builds atomic.Int64
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName != "createIndexes" {
			return
		}
		builds.Add(1)
		most, limited := e.Command.Lookup("maxTimeMS").AsInt64OK()
		if limited && time.Duration(most)*time.Millisecond < time.Hour {
			t.Errorf("the server may take %d ms", most)
		}
	}}
	c := DefaultConfig(mongotest.Fresh(t))
	c.Buckets = 8
	s, err := connect(c, monitor)
	if err != nil {
		t.Fatal(err)
	}
	defer s.client.Disconnect(t.Context())
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if builds.Load() == 0 {
		t.Error("no index was created")
	}
}
