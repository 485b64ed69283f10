package mongo

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// What is pending is counted by the nodes: each knows from the answers to its writes what they
// changed. Once a second it adds that to the collection usage, and reads what others added. No
// request waits for it.
//
// So after two quiet seconds every node has the exact counts. Before that, a node lacks what
// others changed in these two seconds. A change is lost if a node ends before it is shared, and
// one whose outcome is unknown is not counted; then the counts are off until the next recount
// (recount.go).

const (
	// shareMax bounds how many slots a share writes. What is more waits for the next one.
	shareMax = 10_000
	// readAllEvery is how often a share reads every document. Others read what changed.
	readAllEvery = time.Minute
	// changedMargin is by how much the clocks of primaries may differ: what changed this long
	// before the last change that was seen is read again.
	changedMargin = 10 * time.Second
)

// usageDocument is what is pending in a slot, as far as it was shared.
type usageDocument struct {
	ID       string        `bson:"_id"` // tenant, zero byte, slot
	Messages int64         `bson:"messages"`
	Bytes    int64         `bson:"bytes"`
	Changed  bson.DateTime `bson:"changed"`
}

func usageID(tenant string, slot store.Slot) string { return fmt.Sprintf("%s\x00%05d", tenant, slot) }

// change is what the document says, times by; ok is false if it is no slot's.
func (d *usageDocument) change(by int64) (c store.Change, ok bool) {
	tenant, text, found := strings.Cut(d.ID, "\x00")
	slot, err := strconv.ParseUint(text, 10, 16)
	return store.Change{Tenant: tenant, Slot: store.Slot(slot), Messages: by * d.Messages, Bytes: by * d.Bytes},
		found && err == nil
}

// counts are this process's view of what is pending.
type counts struct {
	shown  *store.Tally // what was read, and what was not shared when it was
	own    *store.Tally // what this process changed and has not shared
	unsure atomic.Bool  // a change is not known: a recount is needed

	sharing   sync.Mutex               // held by a share; guards the rest
	shared    []store.Change           // written, and not read yet
	read      map[string]usageDocument // as they were read last
	changed   bson.DateTime            // the last change that was read
	readAllAt time.Time
}

func newCounts() counts {
	return counts{shown: store.NewTally(), own: store.NewTally(), read: map[string]usageDocument{}}
}

// count notes what this process changed.
func (s *Store) count(changes ...store.Change) {
	s.counts.own.Add(changes...)
	s.counts.shown.Add(changes...)
}

// doubt notes that a write may have changed what is pending, and nobody knows how.
func (s *Store) doubt() { s.counts.unsure.Store(true) }

// doubtIf is doubt if the outcome of a write is unknown.
func (s *Store) doubtIf(err error) {
	if postdate.KindOf(err) == postdate.KindUnknown {
		s.doubt()
	}
}

// pendingChange is a message that becomes PENDING (1), or no longer is (-1).
func (s *Store) pendingChange(tenant string, channel postdate.Channel, payloadBytes int, by int64) store.Change {
	return store.Change{Tenant: tenant, Slot: store.SlotOf(channel, s.birth), Messages: by,
		Bytes: by * int64(payloadBytes)}
}

// UsageOf implements store.Tenants.
func (s *Store) UsageOf(tenant string, channel postdate.Channel) (store.Usage, bool) {
	return s.counts.shown.Of(tenant, store.SlotOf(channel, s.birth))
}

// Usages implements store.Tenants.
func (s *Store) Usages(context.Context) ([]store.TenantUsage, error) {
	return s.counts.shown.All(), nil
}

// ShareUsage does at once what a store does by itself in the course of time: it shares what it
// counted, counts anew if it is unsure, and reads what others shared. Tests call it.
func (s *Store) ShareUsage(ctx context.Context) error {
	err := s.share(ctx)
	if err != nil || !s.counts.unsure.Swap(false) {
		return err
	}
	if err := s.recount(ctx, 0); err != nil {
		return err
	}
	return s.share(ctx)
}

// share writes what this process counted, and reads what changed.
func (s *Store) share(ctx context.Context) error {
	s.counts.sharing.Lock()
	defer s.counts.sharing.Unlock()
	return s.within(ctx, func(ctx context.Context) error {
		if err := s.writeCounts(ctx); err != nil {
			return err
		}
		return s.readCounts(ctx)
	})
}

func (s *Store) writeCounts(ctx context.Context) error {
	c := &s.counts
	changes := c.own.Take()
	if len(changes) > shareMax {
		c.own.Add(changes[shareMax:]...)
		changes = changes[:shareMax]
	}
	err := writeError("sharing what is pending", s.addCounts(ctx, changes))
	switch {
	case err == nil:
		c.shared = append(c.shared, changes...)
	case postdate.KindOf(err) == postdate.KindUnknown:
		s.doubt()
		c.shown.Add(negated(changes)...) // what was written of it will be read
	default:
		c.own.Add(changes...)
	}
	return err
}

// addCounts adds changes to the documents. It must not be repeated.
func (s *Store) addCounts(ctx context.Context, changes []store.Change) error {
	if len(changes) == 0 {
		return nil
	}
	statements := make([]driver.WriteModel, len(changes))
	for i, c := range changes {
		statements[i] = driver.NewUpdateOneModel().SetUpsert(true).SetHint(indexID).
			SetFilter(doc("_id", usageID(c.Tenant, c.Slot))).
			SetUpdate(doc("$inc", doc("messages", c.Messages, "bytes", c.Bytes), "$currentDate", doc("changed", true)))
	}
	return s.once(ctx, func(ctx context.Context) error {
		_, err := s.usage.BulkWrite(ctx, statements, options.BulkWrite().SetOrdered(false))
		if err != nil && !notSent(err) {
			return unknown("sharing what is pending", err) // some may be written
		}
		return err
	})
}

func negated(changes []store.Change) []store.Change {
	negative := make([]store.Change, len(changes))
	for i, c := range changes {
		c.Messages, c.Bytes = -c.Messages, -c.Bytes
		negative[i] = c
	}
	return negative
}

// readCounts reads what changed since the last time, or everything.
func (s *Store) readCounts(ctx context.Context) error {
	c := &s.counts
	everything := c.readAllAt.IsZero() || time.Since(c.readAllAt) > readAllEvery
	filter := doc()
	if !everything {
		ids := make([]string, len(c.shared))
		for i, own := range c.shared {
			ids[i] = usageID(own.Tenant, own.Slot)
		}
		filter = doc("$or", bson.A{
			doc("changed", doc("$gte", c.changed-bson.DateTime(changedMargin.Milliseconds()))),
			doc("_id", doc("$in", ids)),
		})
	}
	begun := time.Now()
	found, err := s.findCounts(ctx, filter)
	if err != nil {
		return readError("reading what is pending", err)
	}
	changes := negated(c.shared) // they are in what was read
	if everything {
		for id, was := range c.read {
			if _, there := found[id]; !there {
				change, _ := was.change(-1)
				changes = append(changes, change)
				delete(c.read, id)
			}
		}
		c.readAllAt = begun
	}
	for id, is := range found {
		was := c.read[id]
		change, _ := is.change(1)
		change.Messages -= was.Messages
		change.Bytes -= was.Bytes
		changes = append(changes, change)
		c.read[id], c.changed = is, max(c.changed, is.Changed)
	}
	c.shown.Add(changes...)
	c.shared = nil
	return nil
}

// findCounts finds slots' documents, by id.
func (s *Store) findCounts(ctx context.Context, filter bson.D) (found map[string]usageDocument, err error) {
	err = s.repeat(ctx, func(ctx context.Context) error {
		cursor, err := s.usage.Find(ctx, filter)
		if err == nil {
			found, err = readUsage(ctx, cursor)
		}
		return err
	})
	return found, err
}

// readUsage reads the slots' documents of a cursor, by id.
func readUsage(ctx context.Context, cursor *driver.Cursor) (map[string]usageDocument, error) {
	var all []usageDocument
	err := cursor.All(ctx, &all)
	found := make(map[string]usageDocument, len(all))
	for _, d := range all {
		if _, ok := d.change(1); ok {
			found[d.ID] = d
		}
	}
	return found, err
}
