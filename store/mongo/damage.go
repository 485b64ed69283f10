package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/postdate/postdate"
)

// A document that cannot be decoded, because somebody changed it by hand, say, stops nobody but
// itself: it is read as a damaged one, which has what the server found it by and nothing else.

// readAll reads the messages of a cursor.
func readAll(ctx context.Context, cursor *driver.Cursor) (all []*document, err error) {
	defer cursor.Close(ctx)
	for cursor.Next(ctx) {
		d := &document{}
		if err := cursor.Decode(d); err != nil {
			d = damaged(cursor.Current, err)
		}
		all = append(all, d)
	}
	return all, cursor.Err()
}

func damaged(raw bson.Raw, why error) *document {
	d := &document{damaged: why}
	d.ID, _ = raw.Lookup("_id").StringValueOK()
	b, _ := raw.Lookup("bucket").AsInt64OK()
	d.Bucket = int(b)
	key := keyOf(d.Bucket, d.ID)
	d.Tenant, d.ScheduleID = key.Tenant, key.ScheduleID
	due, _ := raw.Lookup("due").DateTimeOK()
	d.Due = (*postdate.Time)(&due)
	at, _ := raw.Lookup("executionTime").DateTimeOK()
	d.ExecutionTime = postdate.Time(at)
	return d
}

// report logs a damaged message that is passed over.
func (s *Store) report(d *document) {
	s.c.Log.Error("a message cannot be read: it is passed over and stays as it is", "scheduleId", d.ScheduleID, "bucket", d.Bucket, "error", d.damaged)
}

func errDamaged(d *document) error {
	return postdate.E(postdate.KindInternal, "message %q cannot be read: its document is damaged (%w)", d.ScheduleID, d.damaged)
}
