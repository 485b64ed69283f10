package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// upcomingExaminedMax bounds how many entries of the due index a look at what is upcoming goes over, and then how many
// messages it reads. Those of other tenants count too: they are in the way.
const upcomingExaminedMax = 5_000

// Upcoming implements store.Messages. It counts the first buckets, as many as it may, and takes them for a sample. If
// not even one may be counted, it reads the beginning of each slot in the first bucket, and estimates the rest.
func (s *Store) Upcoming(ctx context.Context, q store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	f, err := s.forecast(ctx, &q)
	if err != nil {
		return nil, readError("counting what is upcoming", err)
	}
	return f.Slots(), nil
}

// Pending implements store.Messages, as Upcoming.
func (s *Store) Pending(ctx context.Context, tenant string, at postdate.Time) (store.Pending, error) {
	q := store.PendingQuery(tenant, at)
	f, err := s.forecast(ctx, &q)
	if err != nil {
		return store.Pending{}, readError("counting what is pending", err)
	}
	return f.Pending(), nil
}

func (s *Store) forecast(ctx context.Context, q *store.UpcomingQuery) (f *store.Forecast, err error) {
	u := upcoming{s: s, q: q, most: upcomingExaminedMax}
	err = s.within(ctx, func(ctx context.Context) error {
		f, err = u.forecast(ctx)
		return err
	})
	return f, err
}

// upcoming is one look at what is upcoming.
type upcoming struct {
	s    *Store
	q    *store.UpcomingQuery
	most int // entries, and messages, that it looks at

	damaged bool // not all messages could be read
}

func (u *upcoming) forecast(ctx context.Context) (*store.Forecast, error) {
	buckets := u.s.c.Buckets
	whole, err := u.whole(ctx)
	if err != nil {
		return nil, err
	}
	if whole == 0 {
		return u.estimate(ctx)
	}
	groups, err := u.groups(ctx, u.spans(whole, u.q.From, u.q.To), u.most+1, doc("slot", u.slotOf()))
	if err != nil {
		return nil, err
	}
	f, read := store.NewForecast(u.q), 0
	for i := range groups {
		read += groups[i].N
		u.add(f, int(groups[i].ID.Slot), &groups[i])
	}
	if whole < buckets {
		f.Scale(func(int) float64 { return float64(buckets) / float64(whole) })
	}
	f.Exact = whole == buckets && !u.damaged && read <= u.most // more may have come between the two reads
	return f, nil
}

// spans are a part of each of the first buckets.
func (u *upcoming) spans(buckets int, from, to postdate.Time) (all []span) {
	for b := range buckets {
		all = append(all, u.span(b, from, to))
	}
	return all
}

func (u *upcoming) span(b int, from, to postdate.Time) span {
	return span{bucket: b, after: bucket.Position{Time: from}, to: bucket.Position{Time: to}}
}

// whole is how many buckets may be counted, from the first one on. It reads the index alone.
func (u *upcoming) whole(ctx context.Context) (buckets int, err error) {
	var groups []struct {
		Bucket int `bson:"_id"`
		N      int `bson:"n"`
	}
	stages := bson.A{doc("$group", doc("_id", "$bucket", "n", doc("$sum", 1)))}
	err = u.aggregate(ctx, u.spans(u.s.c.Buckets, u.q.From, u.q.To), u.most+1, stages, &groups)
	n, last := 0, 0
	for _, g := range groups {
		n, last = n+g.N, max(last, g.Bucket)
	}
	if n <= u.most {
		return u.s.c.Buckets, err
	}
	return last, err // the last one may have more
}

// upcomingGroup is how many messages of the tenant that are alike were found.
type upcomingGroup struct {
	ID struct {
		Slot    int64         `bson:"slot"`
		Channel bson.RawValue `bson:"channel"`
		Parked  bool          `bson:"parked"`
		Paused  bool          `bson:"paused"`
		Own     bool          `bson:"own"`
		Sound   bool          `bson:"sound"` // its time can be read
	} `bson:"_id"`
	N    int            `bson:"n"`
	Last *bson.RawValue `bson:"last"`
}

// sound says whether a message's time is one. The server also finds a message by one of a list of times.
var sound = doc("$eq", bson.A{doc("$type", "$due"), "date"})

// slotOf is the number of the slot of a message, for an aggregation.
func (u *upcoming) slotOf() bson.D {
	if u.q.Step == 0 { // of a PendingQuery: what is due already, and all the rest
		return doc("$cond", bson.A{doc("$lt", bson.A{"$due", u.q.Begin(1)}), int64(0), int64(1)})
	}
	since := doc("$subtract", bson.A{"$due", u.q.From})
	return doc("$cond", bson.A{sound,
		doc("$toLong", doc("$floor", doc("$divide", bson.A{since, max(1, u.q.Step.Milliseconds())}))), int64(0)})
}

// groups reads the first messages of spans, whoever's they are, and counts those that are alike.
func (u *upcoming) groups(ctx context.Context, spans []span, most int, by bson.D) (groups []upcomingGroup, err error) {
	set := func(field string) bson.D { return doc("$eq", bson.A{field, true}) }
	ids := idsOf(postdate.AllOf(u.q.Tenant))
	by = append(by, doc("channel", "$channel", "sound", sound,
		"parked", set("$parked"), "paused", set("$paused"),
		"own", doc("$and", bson.A{doc("$gte", bson.A{"$_id", doc("$literal", ids[0].Value)}),
			doc("$lt", bson.A{"$_id", doc("$literal", ids[1].Value)})}))...)
	stages := bson.A{doc("$group", doc("_id", by, "n", doc("$sum", 1), "last", doc("$max", "$due")))}
	err = u.aggregate(ctx, spans, most, stages, &groups)
	return groups, err
}

// aggregate reads the first entries of spans, in order.
func (u *upcoming) aggregate(ctx context.Context, spans []span, most int, stages bson.A, all any) error {
	ranges := u.s.rangesOf(spans)
	if len(ranges) == 0 {
		return nil
	}
	pipeline := append(bson.A{doc("$match", ranges[0]), doc("$sort", orderDue), doc("$limit", most)}, stages...)
	o := options.Aggregate().SetHint(u.s.dueIndex()).SetBatchSize(int32(most) + 1)
	return u.s.repeat(ctx, func(ctx context.Context) error {
		cursor, err := u.s.messages.Aggregate(ctx, pipeline, o)
		if err != nil {
			return err
		}
		return cursor.All(ctx, all)
	})
}

// add adds what counts of a group to f.
func (u *upcoming) add(f *store.Forecast, slot int, g *upcomingGroup) {
	if !g.ID.Own {
		return
	}
	channel, ok := g.ID.Channel.StringValueOK()
	if !ok || !g.ID.Sound {
		u.damaged = true
		u.s.c.Log.Error("messages cannot be counted: they are passed over and stay as they are",
			"tenant", u.q.Tenant, "count", g.N)
		return
	}
	if slot < u.q.Slots() {
		f.Add(slot, postdate.Route(channel).Channel(), store.WaitsOf(g.ID.Parked, g.ID.Paused), g.N)
	}
}

// estimate reads the beginnings of the slots of the first bucket, and of what lies before and after them.
func (u *upcoming) estimate(ctx context.Context) (*store.Forecast, error) {
	n := u.q.Slots()
	strips, found := make([]store.Strip, n+2), make([][]upcomingGroup, n+2)
	most := max(1, u.most/len(strips))
	for i := range n {
		strips[i].From, strips[i].To = u.q.Begin(i), u.q.Begin(i+1)
	}
	strips[n].To, strips[n+1].From, strips[n+1].To = u.q.From, u.q.To, postdate.Far
	err := u.s.sideBySide(ctx, len(strips), func(ctx context.Context, i int) (err error) {
		some := []span{u.span(0, strips[i].From, strips[i].To)}
		found[i], err = u.groups(ctx, some, most, doc("slot", doc("$literal", int64(i))))
		return err
	})
	if err != nil {
		return nil, err
	}
	f := store.NewForecast(u.q)
	for i, groups := range found {
		s := &strips[i]
		for j := range groups {
			g := &groups[j]
			s.Read += g.N
			if g.ID.Own {
				s.Own += g.N
			}
			if g.Last != nil && g.ID.Sound {
				s.Last = max(s.Last, postdate.Time(g.Last.DateTime()))
			}
			u.add(f, i, g)
		}
		s.More = s.Read == most // or it has just so many
	}
	usage, _ := u.s.UsageOf(u.q.Tenant, "")
	counts := store.Spread(float64(usage.Messages)/float64(u.s.c.Buckets), strips)
	f.Scale(func(i int) float64 { return counts[i] / float64(strips[i].Own) * float64(u.s.c.Buckets) })
	return f, nil
}
