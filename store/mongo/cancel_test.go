package mongo_test

import (
	"context"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// loseAnAnswer loses the answer to the next update: the driver hears that no majority has it.
func loseAnAnswer(set *mongotest.Set) {
	set.FailCommands(bson.D{{Key: "times", Value: 1}}, bson.D{
		{Key: "failCommands", Value: bson.A{"update"}},
		{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 91}, {Key: "errmsg", Value: "the test says so"}}},
	})
}

// soon has the driver look again at a server of which it heard an error within half a second, in place
// of ten.
const soon = "&heartbeatFrequencyMS=500"

// A cancel writes CANCELLED, but loses the answer, and is cut off when it looks again. It must
// not say that nothing was done.
func TestCancelThatWasCutOffAfterItsWrite(t *testing.T) {
	set := mongotest.Start(t, 1)
	var updates atomic.Int64
	ctx, cut := context.WithCancel(t.Context())
	defer cut()
	monitor := onMessages(func(command bson.Raw) {
		if name, _ := command.IndexErr(0); name.Key() != "update" {
			return
		}
		switch updates.Add(1) {
		case 2: // the first was the mark
			loseAnAnswer(set)
		case 4: // the third found nothing left to do
			cut()
		}
	})
	s := openWatched(t, config(set.Fresh()+soon), monitor)
	defer s.Close()
	m := testMessage("a", s.Buckets(), 1_900_000_000_000)
	if r := s.Insert(t.Context(), []postdate.Message{m})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	err := s.Cancel(ctx, []postdate.Key{m.Key}, 1)[0].Err
	rec, getErr := s.Get(t.Context(), m.Key)
	if getErr != nil || rec.Status != postdate.Cancelled || updates.Load() != 4 {
		t.Fatalf("the message is %s, %v, after %d updates, want CANCELLED after 4", rec.Status, getErr, updates.Load())
	}
	if err == nil || postdate.KindOf(err) != postdate.KindUnknown {
		t.Errorf("the cancel answers %v", err)
	}
}
