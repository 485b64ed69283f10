package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// listExaminedMax bounds how many messages one page of a list looks at: a filter
// that selects few of many gives short pages, not long waits.
const listExaminedMax = 10_000

var orderList = doc("executionTime", 1, "bucket", 1, "_id", 1)

// List implements store.Messages.
func (s *Store) List(ctx context.Context, q store.ListQuery) (page store.ListPage, err error) {
	err = s.reading(ctx, func(ctx context.Context) error {
		page, err = s.list(ctx, &q)
		return err
	})
	return page, readError("listing", err)
}

func (s *Store) list(ctx context.Context, q *store.ListQuery) (page store.ListPage, err error) {
	pipeline := bson.A{doc("$match", listRange(q)), doc("$sort", orderList)}
	selecting := bson.D{}
	if q.Status != 0 {
		selecting = append(selecting, bson.E{Key: "status", Value: int(q.Status)})
	}
	if q.Channel != "" {
		// earlier versions wrote the channel alone, whoever the tenant was
		names := []string{string(q.Channel)}
		for _, p := range postdate.Priorities() {
			names = append(names, string(postdate.RouteAt(q.Tenant, q.Channel, p)))
		}
		selecting = append(selecting, bson.E{Key: "channel", Value: anyOf(names)})
	}
	if q.IDPrefix != "" {
		const beyond = "\x7f" // every character of an id
		id := idOf(postdate.Key{Tenant: q.Tenant, ScheduleID: q.IDPrefix})
		selecting = append(selecting, bson.E{Key: "_id", Value: doc("$gte", id, "$lt", id+beyond)})
	}
	if len(selecting) > 0 {
		pipeline = append(pipeline, doc("$limit", listExaminedMax), doc("$match", selecting))
	}
	pipeline = append(pipeline, doc("$limit", q.Limit+1))
	cursor, err := s.messages.Aggregate(ctx, pipeline, options.Aggregate().SetHint(listIndex(q)))
	if err != nil {
		return page, err
	}
	all, err := readAll(ctx, cursor)
	if err != nil {
		return page, err
	}
	for _, d := range all[:min(len(all), q.Limit)] {
		if d.damaged != nil {
			s.report(d)
			continue
		}
		page.Records = append(page.Records, d.record())
	}
	switch {
	case len(all) > q.Limit:
		page.Next = listPosition(all[q.Limit-1])
	case len(selecting) > 0:
		page.Next, err = s.listBorder(ctx, q)
	}
	return page, err
}

func listPosition(d *document) *store.ListPosition {
	return &store.ListPosition{ExecutionTime: d.ExecutionTime, Bucket: d.Bucket, ScheduleID: d.ScheduleID}
}

// listIndex is the index that a list goes by.
func listIndex(q *store.ListQuery) string {
	if q.Label != "" {
		return indexLabel
	}
	return indexList
}

// listRange is the range of its index that a page begins with. After a cursor that is what
// follows at the same time in the same bucket, in later buckets, and at later times.
func listRange(q *store.ListQuery) bson.D {
	begins := func(rest ...any) bson.D {
		if q.Label != "" {
			rest = append([]any{"labels", q.Label}, rest...)
		}
		return doc(append([]any{"tenant", q.Tenant}, rest...)...)
	}
	until := func(low string, at postdate.Time) bson.D {
		times := doc(low, at)
		if q.To != 0 {
			times = append(times, bson.E{Key: "$lt", Value: q.To})
		}
		return times
	}
	if q.After == nil || q.After.ExecutionTime < q.From {
		return begins("executionTime", until("$gte", q.From))
	}
	at := q.After
	if q.To != 0 && at.ExecutionTime >= q.To {
		return begins("executionTime", until("$gt", at.ExecutionTime))
	}
	same := at.ExecutionTime
	id := idOf(postdate.Key{Tenant: q.Tenant, ScheduleID: at.ScheduleID})
	return doc("$or", bson.A{
		begins("executionTime", same, "bucket", at.Bucket, "_id", doc("$gt", id)),
		begins("executionTime", same, "bucket", doc("$gt", at.Bucket)),
		begins("executionTime", until("$gt", at.ExecutionTime)),
	})
}

// listBorder is the last message that a page looked at if the page did not reach the end, and
// nil if it did.
func (s *Store) listBorder(ctx context.Context, q *store.ListQuery) (*store.ListPosition, error) {
	cursor, err := s.messages.Aggregate(ctx, bson.A{
		doc("$match", listRange(q)), doc("$sort", orderList), doc("$skip", listExaminedMax-1), doc("$limit", 1),
		doc("$project", doc("executionTime", 1, "bucket", 1)),
	}, options.Aggregate().SetHint(listIndex(q)))
	if err != nil {
		return nil, err
	}
	border, err := readAll(ctx, cursor)
	if err != nil || len(border) == 0 {
		return nil, err
	}
	border[0].ScheduleID = keyOf(border[0].Bucket, border[0].ID).ScheduleID
	return listPosition(border[0]), nil
}
