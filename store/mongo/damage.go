package mongo

import (
	"context"
	"errors"

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

// errMoving is the damage of a message that is there, and was not found: nobody knows its state.
var errMoving = errors.New("its id is taken, and its message was not found on any shard")

func (d *document) moving() bool { return d.damaged == errMoving }

// errDamaged is the answer of a call that needs the message and has changed nothing.
func errDamaged(d *document) error {
	if d.moving() {
		return postdate.E(postdate.KindUnavailable, "message %q is on its way from one shard to another: try again (%w)", d.ScheduleID, d.damaged)
	}
	return postdate.E(postdate.KindInternal, "message %q cannot be read: its document is damaged (%w)", d.ScheduleID, d.damaged)
}
