package mongo

import (
	"context"
	"errors"
	"slices"
	"time"

	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

const (
	// insertTries bounds how often an insert looks for the message whose id is taken: the
	// message can expire in between.
	insertTries = 5
	codeTaken   = 11000

	// payloadMax fits into one of MongoDB's documents together with the rest of the message,
	// and in an inbox together with its neighbours.
	payloadMax = 6 << 20
)

// Insert implements store.Messages: one unordered insertMany, and a read of what was there
// already.
func (s *Store) Insert(ctx context.Context, messages []postdate.Message) []store.Inserted {
	results := make([]store.Inserted, len(messages))
	ctx, cancel := s.bound(ctx)
	defer cancel()
	p := patience{until: time.Now().Add(heldMax), splits: splitsMax}
	for _, round := range rounds(len(messages), func(i int) postdate.Key { return messages[i].Key }) {
		left := slices.DeleteFunc(round, func(i int) bool {
			size := len(messages[i].Payload)
			if size > payloadMax {
				results[i].Err = errTooLarge(size)
			}
			return size > payloadMax
		})
		for try := 0; len(left) > 0; try++ {
			if try == insertTries {
				fail(results, left, postdate.E(postdate.KindUnavailable,
					"the message came and went while it was scheduled: try again"))
				break
			}
			left = s.insert(ctx, messages, left, results, &p)
		}
	}
	s.countInserted(messages, results)
	return results
}

func (s *Store) countInserted(messages []postdate.Message, results []store.Inserted) {
	var changes []store.Change
	for i, m := range messages {
		s.doubtIf(results[i].Err)
		if results[i].Created {
			changes = store.AddChange(changes, s.pendingChange(m.Tenant, m.Channel, len(m.Payload), 1))
		}
	}
	s.count(changes...)
}

func errTooLarge(size int) error {
	return postdate.E(postdate.KindTooLarge, "the payload has %d bytes: MongoDB takes at most %d", size, payloadMax)
}

func fail(results []store.Inserted, items []int, err error) {
	for _, i := range items {
		results[i] = store.Inserted{Err: err}
	}
}

const (
	// heldMax is how long an insert waits for an id that a transaction holds. Most are over by
	// then; the others may be those of a node that died, which the server keeps for a minute.
	heldMax = 200 * time.Millisecond
	// splitsMax bounds how often an insert is split to leave out messages that are refused.
	splitsMax = 64
)

// patience is what is left of these bounds in one call.
type patience struct {
	until  time.Time
	splits int
}

// insert inserts some of the messages. It returns those whose ids are taken but whose messages
// are not there. If one is refused for a while, and nobody says which, it goes on in halves.
func (s *Store) insert(ctx context.Context, messages []postdate.Message, items []int, results []store.Inserted,
	p *patience) (again []int) {
	err := s.within(ctx, func(ctx context.Context) error {
		documents := make([]*document, len(items))
		for n, i := range items {
			m := &messages[i]
			st := postdate.NewState(m, firstVersion())
			documents[n] = documentOf(m, &st)
			results[i] = store.Inserted{Created: true, ExecutionTime: m.ExecutionTime, Status: postdate.Pending}
		}
		taken, err := s.write(ctx, documents, items, results)
		if err != nil || len(taken) == 0 {
			return err
		}
		drawn := make(map[int]int64, len(items))
		for n, i := range items {
			drawn[i] = documents[n].Version
		}
		again, err = s.present(ctx, messages, taken, drawn, results)
		return err
	})
	switch {
	case err == errHeldID && time.Now().Before(p.until) && rest(ctx, movedPause):
		return s.insert(ctx, messages, items, results, p)
	case (err == errHeldID || err == errOrphan) && len(items) > 1 && p.splits > 0 && ctx.Err() == nil:
		p.splits--
		half := len(items) / 2
		again = s.insert(ctx, messages, items[:half], results, p)
		return append(again, s.insert(ctx, messages, items[half:], results, p)...)
	case err != nil:
		err = writeError("scheduling", err)
		for _, i := range items {
			if results[i].Err == nil {
				results[i] = store.Inserted{Err: err}
			}
		}
	}
	return again
}

// write inserts the items' documents, and returns the items whose ids are taken.
func (s *Store) write(ctx context.Context, documents []*document, items []int,
	results []store.Inserted) (taken []int, err error) {
	if !s.sharded {
		// In a repetition, what an earlier attempt wrote is there already: its version shows that.
		tries := 0
		err := s.repeat(ctx, func(ctx context.Context) error {
			tries++
			_, err := s.messages.InsertMany(ctx, documents, options.InsertMany().SetOrdered(false))
			return err
		})
		if taken, err = takenOf(err, items, results); len(taken) > 0 && tries > 1 {
			s.doubt()
		}
		return taken, err
	}
	places, err := s.insertSharded(ctx, documents)
	for _, n := range places {
		taken = append(taken, items[n])
	}
	return taken, err
}

// takenOf returns the items whose ids are taken, and notes what the server refused.
func takenOf(err error, items []int, results []store.Inserted) (taken []int, rest error) {
	var bulk driver.BulkWriteException
	if err == nil || !errors.As(err, &bulk) || bulk.WriteConcernError != nil {
		return nil, err
	}
	for _, e := range bulk.WriteErrors {
		if e.Index < 0 || e.Index >= len(items) {
			return nil, err
		}
		i := items[e.Index]
		if e.Code == codeTaken {
			taken = append(taken, i)
			continue
		}
		results[i] = store.Inserted{Err: writeError("scheduling",
			driver.WriteException{WriteErrors: driver.WriteErrors{e.WriteError}})}
	}
	if len(bulk.WriteErrors) == 0 {
		return nil, err
	}
	return taken, nil
}

// present answers for messages whose ids are taken, perhaps by this very call, which drew these versions. It returns
// those that are not there (any longer).
func (s *Store) present(ctx context.Context, messages []postdate.Message, items []int, drawn map[int]int64,
	results []store.Inserted) (gone []int, err error) {
	var keys keyed
	for _, i := range items {
		results[i] = store.Inserted{}
		keys.add(messages[i].Key)
	}
	found, err := s.read(ctx, &keys, doc("bucket", 1, "digest", 1, "original", 1, "executionTime", 1, "status", 1,
		"version", 1))
	if err != nil {
		return nil, unknown("scheduling", err) // the ids are taken, perhaps by an attempt of this call
	}
	for _, i := range items {
		m := &messages[i]
		d := found[idOf(m.Key)]
		switch {
		case d == nil:
			gone = append(gone, i)
		case d.damaged != nil:
			results[i].Err = errDamaged(d)
		default:
			results[i] = insertedBefore(m, d)
			results[i].Created = d.Version == drawn[i]
		}
	}
	return gone, nil
}

// insertedBefore is the result for a message whose id is taken.
func insertedBefore(m *postdate.Message, d *document) store.Inserted {
	old := postdate.Message{ExecutionTime: d.ExecutionTime}
	old.Digest, old.Original = d.requests()
	at, repeats := old.Repeats(m.Digest)
	if !repeats {
		return store.Inserted{Err: store.ErrExists(m.Key, postdate.Status(d.Status))}
	}
	return store.Inserted{ExecutionTime: at, Status: postdate.Status(d.Status)}
}

// read reads messages by their keys.
func (s *Store) read(ctx context.Context, keys *keyed, projection any) (map[string]*document, error) {
	found, err := s.readOnce(ctx, keys, projection)
	if err != nil || !s.sharded || len(found) == len(keys.ids) {
		return found, err
	}
	return s.readMoved(ctx, keys, projection, found)
}

// readOnce is read with one command.
func (s *Store) readOnce(ctx context.Context, keys *keyed, projection any) (map[string]*document, error) {
	o := options.Find().SetHint(indexID).SetBatchSize(int32(len(keys.ids) + 1))
	if projection != nil {
		o.SetProjection(projection)
	}
	all, err := s.find(ctx, keys.filter(), o)
	if err != nil {
		return nil, err
	}
	found := make(map[string]*document, len(all))
	for _, d := range all {
		found[d.ID] = d
	}
	return found, nil
}

// Get implements store.Messages.
func (s *Store) Get(ctx context.Context, key postdate.Key) (postdate.Record, error) {
	var keys keyed
	keys.add(key)
	var found map[string]*document
	err := s.within(ctx, func(ctx context.Context) (err error) {
		found, err = s.read(ctx, &keys, nil)
		return err
	})
	if err != nil {
		return postdate.Record{}, readError("reading a message", err)
	}
	d := found[idOf(key)]
	switch {
	case d == nil:
		return postdate.Record{}, store.ErrNotFound(key)
	case d.damaged != nil:
		return postdate.Record{}, errDamaged(d)
	}
	return d.record(), nil
}
