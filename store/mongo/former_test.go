package mongo

import (
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// An earlier version stored the channel alone for messages of any tenant. The first recount gives them
// their routes: then nothing of the default tenant's holds them up, and they come back once parked.
func TestRoutesOfAnEarlierVersion(t *testing.T) {
	s := usageNode(t, mongotest.Fresh(t), time.Hour)
	ctx := t.Context()
	m, other := usageMessage(1, 10), usageMessage(2, 10)
	m.ExecutionTime, other.Channel = 1000, "inbox:other"
	insertMessages(t, s, m)
	_, err := s.messages.UpdateMany(ctx, doc(), doc("$set", doc("channel", "inbox:a")))
	must(t, err)
	insertMessages(t, s, other) // the recount's snapshot is no earlier than this
	page, err := s.List(ctx, store.ListQuery{Tenant: "t", Channel: "inbox:a", Limit: 10})
	must(t, err)
	if len(page.Records) != 1 {
		t.Errorf("the list of the channel has %d messages", len(page.Records))
	}
	must(t, s.recount(ctx, 0))
	token := own(t, s, m.Bucket)
	r := s.Claim(ctx, []store.Claim{{Bucket: m.Bucket, Scan: store.Scan{Limit: 10, BytesMax: 1 << 20}, Claim: bucket.Claim{
		Token: token, Number: 1, To: bucket.UpTo(2000), Behind: map[postdate.Route]bucket.Position{"inbox:a": {}}}}})
	must(t, r[0].Err)
	if len(r[0].Due) != 1 {
		t.Fatalf("beside the default tenant's channel, which is behind, %d messages are handed out", len(r[0].Due))
	}
	must(t, s.Settle(ctx, []store.Settlement{{Key: m.Key, ExecutionTime: 1000, Version: r[0].Due[0].Version, Token: token,
		How: store.SettlePark, AttemptTime: 5000, DownSince: 3000}}))
	n, _, err := s.Unpark(ctx, store.Unpark{Bucket: m.Bucket, Token: token, Route: "@t inbox:a", At: 6000, Limit: 10})
	must(t, err)
	if n != 1 {
		t.Errorf("%d parked messages are found by their route", n)
	}
}
