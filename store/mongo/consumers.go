package mongo

import (
	"context"

	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// consumer is how far a consumer of an inbox has come, in the collection consumers.
type consumer struct {
	ID      string        `bson:"_id"`    // tenant, inbox and consumer
	Bucket  int           `bson:"bucket"` // of the inbox
	Version int64         `bson:"version"`
	UsedAt  postdate.Time `bson:"usedAt"`
	Cursor  string        `bson:"cursor"`
	Reached int64         `bson:"reached"`
	Open    []openLetter  `bson:"open"`
}

// openLetter is a message that a consumer received and did not acknowledge.
type openLetter struct {
	Segment    int64         `bson:"segment"`
	Number     int64         `bson:"number"`
	Until      postdate.Time `bson:"until"`
	Deliveries int           `bson:"deliveries"`
	Receipt    int64         `bson:"receipt"`
}

// Consumer implements store.Consumers.
func (s *Store) Consumer(ctx context.Context, name store.ConsumerName) (store.Consumer, error) {
	var d consumer
	err := s.reading(ctx, func(ctx context.Context) error {
		return s.consumers.FindOne(ctx, doc("_id", consumerID(name)), options.FindOne().SetHint(indexID)).Decode(&d)
	})
	if err != nil && err != driver.ErrNoDocuments {
		return store.Consumer{}, readError("reading a consumer", err)
	}
	c := store.Consumer{Version: uint64(d.Version), UsedAt: d.UsedAt, Cursor: d.Cursor, Reached: d.Reached}
	for _, o := range d.Open {
		c.Open = append(c.Open, store.OpenMessage{
			Place: store.InboxPlace{Segment: o.Segment, Number: o.Number}, Until: o.Until, Deliveries: o.Deliveries,
			Receipt: uint64(o.Receipt),
		})
	}
	return c, nil
}

// SetConsumer implements store.Consumers. No two changes make the same version, so whoever finds the version that it
// was to make has made it, though an answer was lost.
func (s *Store) SetConsumer(ctx context.Context, name store.ConsumerName, from uint64,
	to store.Consumer) (done bool, err error) {
	id := consumerID(name)
	d := consumer{ID: id, Bucket: s.inboxBucket(inboxID(name.Tenant, name.Inbox)), Version: int64(to.Version),
		UsedAt: to.UsedAt, Cursor: to.Cursor, Reached: to.Reached, Open: make([]openLetter, 0, len(to.Open))}
	for _, o := range to.Open {
		d.Open = append(d.Open, openLetter{o.Place.Segment, o.Place.Number, o.Until, o.Deliveries, int64(o.Receipt)})
	}
	err = s.within(ctx, func(ctx context.Context) error {
		err := s.repeat(ctx, func(ctx context.Context) error {
			r, err := s.consumers.ReplaceOne(ctx, doc("_id", id, "version", int64(from)), &d,
				options.Replace().SetUpsert(from == 0).SetHint(indexID))
			done = err == nil && r.MatchedCount+r.UpsertedCount > 0
			return err
		})
		if done || err != nil && !driver.IsDuplicateKeyError(err) {
			return err
		}
		now, err := s.versionOf(ctx, id)
		done = now == d.Version
		return err
	})
	return done && err == nil, writeError("setting a consumer", err)
}

// versionOf is the version of a consumer; 0: there is none. Its error says that the outcome of the write before it
// is unknown.
func (s *Store) versionOf(ctx context.Context, id string) (int64, error) {
	var d consumer
	err := s.repeat(ctx, func(ctx context.Context) error {
		return s.consumers.FindOne(ctx, doc("_id", id),
			options.FindOne().SetHint(indexID).SetProjection(doc("version", 1))).Decode(&d)
	})
	if err == driver.ErrNoDocuments {
		return 0, nil
	}
	return d.Version, unknown("setting a consumer", err)
}

func consumerID(name store.ConsumerName) string {
	return inboxID(name.Tenant, name.Inbox) + name.Consumer
}

// expireConsumers deletes the consumers that e selects.
func (s *Store) expireConsumers(ctx context.Context, e *store.Expiry) error {
	_, err := s.expireFrom(ctx, s.consumers, "usedAt", e.DeliveredBefore, e)
	return err
}
