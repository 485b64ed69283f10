package mongo

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/mongo/routertest"
)

// TestPartlyRefused: the server takes the cancel of one message and refuses that of another, in
// one command. Neither caller is told that surely nothing was done.
func TestPartlyRefused(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		uri := mongotest.Fresh(t)
		if sharded {
			uri = routertest.Start(t, uri).URI()
		}
		c := DefaultConfig(uri)
		c.Buckets = 8
		s, err := Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		all := insertInBucket(t, s, 1, 2)
		never := doc("$nor", bson.A{doc("status", int(postdate.Cancelled), "scheduleId", all[1].ScheduleID)})
		if err := s.messages.Database().RunCommand(t.Context(), doc("collMod", "messages", "validator", never)).Err(); err != nil {
			t.Fatal(err)
		}
		for i, r := range s.Cancel(t.Context(), []postdate.Key{all[0].Key, all[1].Key}, 5) {
			if postdate.KindOf(r.Err) != postdate.KindUnknown {
				t.Errorf("sharded %t, message %d: %+v", sharded, i, r)
			}
		}
		if rec, err := s.Get(t.Context(), all[0].Key); err != nil || rec.Status != postdate.Cancelled {
			t.Errorf("sharded %t: %+v, %v: this test shows nothing", sharded, rec.State, err)
		}
	}
}
