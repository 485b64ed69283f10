package mongo

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
)

// A document that cannot be decoded, for example because somebody changed it by hand, harms
// only itself: it is read as a damaged one, which has nothing but what the server found it by.

// readAll reads the messages of a cursor.
func readAll(ctx context.Context, cursor *driver.Cursor) (all []*document, err error) {
	defer cursor.Close(ctx)
	for cursor.Next(ctx) {
		all = append(all, read(cursor))
	}
	return all, cursor.Err()
}

// read reads the message at which a cursor is.
func read(cursor *driver.Cursor) *document {
	d := &document{}
	err := cursor.Decode(d)
	if err == nil {
		err = d.checkSeries()
	}
	if err != nil {
		return damaged(cursor.Current, err)
	}
	return d
}

// find reads messages, and again if that may help.
func (s *Store) find(ctx context.Context, filter bson.D, o *options.FindOptionsBuilder) (all []*document, err error) {
	err = s.repeat(ctx, func(ctx context.Context) error {
		cursor, err := s.messages.Find(ctx, filter, o)
		if err != nil {
			return err
		}
		all, err = readAll(ctx, cursor)
		return err
	})
	return all, err
}

// noBucket is the bucket of a damaged message whose bucket cannot be read.
const noBucket = -1

func damaged(raw bson.Raw, why error) *document {
	d := &document{damaged: why, Bucket: noBucket}
	d.ID, _ = raw.Lookup("_id").StringValueOK()
	if b, ok := raw.Lookup("bucket").AsInt64OK(); ok {
		d.Bucket = int(b)
	}
	key := keyOf(d.Bucket, d.ID)
	d.Tenant, d.ScheduleID = key.Tenant, key.ScheduleID
	if due, ok := raw.Lookup("due").DateTimeOK(); ok {
		d.Due = (*postdate.Time)(&due)
	}
	at, _ := raw.Lookup("executionTime").DateTimeOK()
	d.ExecutionTime = postdate.Time(at)
	return d
}

// placed says whether it is known where a message waits. A server also finds a message by a
// part of what somebody put there, such as one of a list of times. A scan that continued from
// such a place could go back again and again.
func (d *document) placed() bool { return d.Due != nil && d.ID != "" }

func anyPlaced(all []*document) bool { return slices.ContainsFunc(all, (*document).placed) }

// sound returns the messages that are not damaged, and reports the others.
func (s *Store) sound(all []*document) []*document {
	return slices.DeleteFunc(all, func(d *document) bool {
		if d.damaged != nil {
			s.report(d)
		}
		return d.damaged != nil
	})
}

// report logs a damaged message that is skipped.
func (s *Store) report(d *document) {
	s.c.Log.Error("a message cannot be read: it is passed over and stays as it is",
		"scheduleId", d.ScheduleID, "bucket", d.Bucket, "error", d.damaged)
}

// errMoving is the damage of a message that exists but was not found: its state is unknown.
var errMoving = errors.New("its id is taken, and its message was not found on any shard")

func (d *document) moving() bool { return d.damaged == errMoving }

// errDamaged is the answer of a call that needs the message and has changed nothing.
func errDamaged(d *document) error {
	if d.moving() {
		return postdate.E(postdate.KindUnavailable,
			"message %q is on its way from one shard to another: try again (%w)", d.ScheduleID, d.damaged)
	}
	return postdate.E(postdate.KindInternal, "message %q cannot be read: its document is damaged (%w)",
		d.ScheduleID, d.damaged)
}
