package mongo

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// TestOvertakeMarkByMark: an owner read two messages with a mark each. Before it removes the
// marks, the first is replaced, and gets the mark of the second. As many marks are removed as
// were read, but the owner does not take the new version for the one it read.
func TestOvertakeMarkByMark(t *testing.T) {
	s := openFresh(t)
	var marked []*document
	marks := []bson.ObjectID{bson.NewObjectID(), bson.NewObjectID()}
	for i, id := range []string{"x", "y"} {
		m := postdate.Message{Key: bucket.KeyOf("default", id, 8), Channel: "inbox:a", ExecutionTime: 1000}
		st := postdate.NewState(&m, 1)
		d := documentOf(&m, &st)
		d.Mark = &mark{ID: marks[i]}
		if _, err := s.messages.InsertOne(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		marked = append(marked, d)
	}
	err := s.within(t.Context(), func(ctx context.Context) error {
		_, err := s.messages.UpdateOne(ctx, doc("_id", marked[0].ID), doc("$set", doc("version", int64(2), "mark.id", marks[1])))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	page := newScan(&store.Claim{Claim: bucket.Claim{Token: 1, To: bucket.UpTo(1000)}})
	page.chosen = marked
	if err := s.overtake(t.Context(), []*scan{page}); err != nil {
		t.Fatal(err)
	}
	if len(page.chosen) != 1 || page.chosen[0].ScheduleID != "y" {
		t.Errorf("%d messages are handed out, want y alone", len(page.chosen))
	}
}

// TestASlowRemovalIsTriedAgain: a removal that began shortly before the time ran out says
// nothing about its mark, and the next scan repeats it. One that had enough time counts.
func TestASlowRemovalIsTriedAgain(t *testing.T) {
	var k keptMarks
	shared := &mark{ID: bson.NewObjectID()}
	short, long := &document{ID: "short", Mark: shared}, &document{ID: "long", Mark: shared}
	k.add(short, time.Millisecond)
	k.add(long, overtakeMax)
	if others := k.others([]*document{short, long}); len(others) != 1 || others[0] != short {
		t.Errorf("%d marks are tried again, want that of the short try alone", len(others))
	}
}
