package mongo

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// listExaminedMax bounds how many messages one page of a list looks at: a filter
// that selects few of many gives short pages, not long waits.
const listExaminedMax = 10_000

// listBatchMin is how many messages the server sends at least in a later answer to one list.
const listBatchMin = 100

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
	selected, most := listSelected(q), q.Limit+1
	if len(selected) > 0 {
		most = listExaminedMax
	}
	pipeline = append(pipeline, doc("$limit", most))
	o := options.Aggregate().SetHint(listIndex(q))
	if len(selected) > 0 {
		passed := doc("_id", "$_id", "bucket", "$bucket", "executionTime", "$executionTime",
			"passed", doc("$literal", true))
		pipeline = append(pipeline, doc("$replaceWith", doc("$cond", bson.A{doc("$and", selected), "$$ROOT", passed})))
		o.SetBatchSize(int32(q.Limit + 1))
	}
	if q.StatesOnly {
		// last, for the server reads ahead by the size of what it has read
		pipeline = append(pipeline, doc("$project", append(slices.Clone(stateFields), bson.E{Key: "passed", Value: 1})))
	}
	cursor, err := s.messages.Aggregate(ctx, pipeline, o)
	if err != nil {
		return page, err
	}
	all, border, err := readListed(ctx, cursor, q.Limit+1, most)
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
	if len(all) > q.Limit {
		border = all[q.Limit-1]
	}
	if border != nil {
		page.Next = listPosition(border)
	}
	return page, nil
}

// listSelected are the conditions of a list that its index does not have, as expressions. A stage that
// left out what does not meet them would not say where the page ends, and a second read might say it wrongly:
// what was deleted in between would move the end past messages that nobody looked at.
func listSelected(q *store.ListQuery) (all bson.A) {
	index := listIndex(q)
	if q.Status != 0 && index != indexFailed {
		all = append(all, doc("$eq", bson.A{"$status", int(q.Status)}))
	}
	if q.Recurring != 0 && index != indexSeries {
		all = append(all, doc("$eq", bson.A{doc("$type", "$recurrence"), "missing"}))
		if q.Recurring == store.OnlyRecurring {
			all[len(all)-1] = doc("$not", bson.A{all[len(all)-1]})
		}
	}
	if q.Channel != "" {
		// earlier versions wrote the channel alone, whoever the tenant was
		names := []string{string(q.Channel)}
		for _, p := range postdate.Priorities() {
			names = append(names, string(postdate.RouteAt(q.Tenant, q.Channel, p)))
		}
		all = append(all, doc("$in", bson.A{"$channel", doc("$literal", names)}))
	}
	if q.IDPrefix != "" {
		const beyond = "\x7f" // every character of an id
		id := idOf(postdate.Key{Tenant: q.Tenant, ScheduleID: q.IDPrefix})
		all = append(all, doc("$gte", bson.A{"$_id", doc("$literal", id)}),
			doc("$lt", bson.A{"$_id", doc("$literal", id+beyond)}))
	}
	return all
}

// readListed reads until limit messages are selected, or they fill a page. If there may be more, because it looked at
// as many as it may or the page is full, border is the last one.
func readListed(ctx context.Context, cursor *driver.Cursor, limit, most int) (all []*document, border *document,
	err error) {
	defer cursor.Close(ctx)
	looked, bytes := 0, 0
	for len(all) < limit && bytes < store.PageBytesMax && cursor.Next(ctx) {
		looked++
		// the next batch is as large as all before it: few round trips, and little that is not wanted
		cursor.SetBatchSize(int32(max(looked, listBatchMin)))
		if passed, _ := cursor.Current.Lookup("passed").BooleanOK(); passed {
			border = damaged(cursor.Current, nil) // it has its place, and no more is needed
			continue
		}
		border = read(cursor)
		all = append(all, border)
		bytes += len(border.Payload) + len(border.Large) + headersBytes(border.Headers)
	}
	if looked < most && bytes < store.PageBytesMax {
		border = nil
	}
	return all, border, cursor.Err()
}

func listPosition(d *document) *store.ListPosition {
	return &store.ListPosition{ExecutionTime: d.ExecutionTime, Bucket: d.Bucket, ScheduleID: d.ScheduleID}
}

// listIndex is the index that a list goes by.
func listIndex(q *store.ListQuery) string {
	switch {
	case q.Label != "":
		return indexLabel
	case q.Recurring == store.OnlyRecurring:
		return indexSeries
	case q.Status == postdate.DeliveryFailed:
		return indexFailed
	}
	return indexList
}

// listRange is the range of its index that a page begins with. After a cursor that is what
// follows at the same time in the same bucket, in later buckets, and at later times.
func listRange(q *store.ListQuery) bson.D {
	begins := func(rest ...any) bson.D {
		switch listIndex(q) {
		case indexLabel:
			rest = append([]any{"labels", q.Label}, rest...)
		case indexSeries:
			rest = append(rest, "recurrence", doc("$exists", true))
		case indexFailed:
			rest = append(rest, "status", int(postdate.DeliveryFailed))
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
