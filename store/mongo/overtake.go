package mongo

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// overtakeMax bounds how long a claim waits for marked messages that a transaction holds. The
// transaction may be that of a node that died: the server then keeps it for a minute.
const (
	overtakeMax = time.Second
	// keptPause is how long a message whose mark could not be removed is left out before the
	// next try.
	keptPause = 10 * time.Second
	// keptMin is how long the removal of a mark must have been tried for its failure to count.
	keptMin = overtakeMax / 2
)

// keptMarks are the marks that could not be removed, and until when they are not tried again.
type keptMarks struct {
	mu    sync.Mutex
	until map[markOn]time.Time
}

// markOn is a mark on one message. Thousands of messages may bear the same mark, and whoever
// holds one of the messages need not hold the others.
type markOn struct {
	message string
	mark    bson.ObjectID
}

func (d *document) markOn() markOn { return markOn{d.ID, d.Mark.ID} }

// add notes a mark whose removal was tried for that long and failed. A shorter try may only
// have been slow: the next scan repeats it.
func (k *keptMarks) add(d *document, tried time.Duration) {
	if tried < keptMin {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.until == nil {
		k.until = map[markOn]time.Time{}
	}
	k.until[d.markOn()] = time.Now().Add(keptPause)
}

// others returns the messages whose marks are not kept.
func (k *keptMarks) others(marked []*document) (others []*document) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(k.until, func(_ markOn, until time.Time) bool { return until.Before(now) })
	for _, d := range marked {
		if _, kept := k.until[d.markOn()]; !kept {
			others = append(others, d)
		}
	}
	return others
}

// overtake removes the marks of those who are about to change messages that the scans chose.
// Once its mark is removed, a bearer can no longer write. If the mark was already gone, its
// bearer may have written, and the message is read again. A message whose mark still stands is
// left out, because its bearer may still write: a later scan finds it again.
func (s *Store) overtake(ctx context.Context, scans []*scan) error {
	var marked []*document
	for _, c := range scans {
		for _, d := range c.chosen {
			if meet(d.Mark, c.Token) == meetOvertake {
				marked = append(marked, d)
			}
		}
	}
	if len(marked) == 0 {
		return nil
	}
	if all, err := s.removeMarks(ctx, marked); err != nil || all {
		return err
	}
	var keys keyed
	for _, d := range marked {
		keys.add(d.key())
	}
	var now map[string]*document
	err := s.within(ctx, func(ctx context.Context) (err error) {
		now, err = s.read(ctx, &keys, stateFields)
		return err
	})
	if err != nil {
		return err
	}
	for _, c := range scans {
		c.chosen = slices.DeleteFunc(c.chosen, func(d *document) bool {
			if meet(d.Mark, c.Token) != meetOvertake || overtaken(d, now[d.ID]) {
				return false
			}
			if mayBeDue(d, now[d.ID]) {
				c.leaveForLater(d)
			}
			return true
		})
	}
	return nil
}

// mayBeDue says whether a message that is left out of a page may still be what the scan found.
// now is nil if the message is gone.
func mayBeDue(was, now *document) bool {
	return now != nil && (now.moving() || now.damaged == nil && stillDue(was.state(), now.state()))
}

// leaveForLater notes the place of a message that is left out, if it is the first one.
func (c *scan) leaveForLater(d *document) {
	if at := d.place(); c.leftOut == (bucket.Position{}) || at.Before(c.leftOut) {
		c.leftOut = at
	}
}

// removeMarks removes the marks that messages bore when they were read. all says that it surely
// removed every one. A transaction may hold a message: behind a mongos that of a reschedule, and of a
// series that of a settlement. There each mark is removed by a command of its own, and those that take
// too long are given up.
func (s *Store) removeMarks(ctx context.Context, marked []*document) (all bool, err error) {
	var free, held []*document
	for _, d := range marked {
		if s.sharded || d.mayBeHeld() {
			held = append(held, d)
		} else {
			free = append(free, d)
		}
	}
	if len(free) > 0 {
		err = s.within(ctx, func(ctx context.Context) error {
			matched, err := s.change(ctx, unmarkAll(free)...)
			all = matched == int64(len(marked))
			return err
		})
	}
	if err != nil || len(held) == 0 {
		return all, err
	}
	ctx, cancel := context.WithTimeout(ctx, overtakeMax)
	defer cancel()
	others := s.kept.others(held)
	return false, s.sideBySide(ctx, len(others), func(ctx context.Context, i int) error {
		if ctx.Err() != nil {
			return nil // it was not tried: a later scan will
		}
		began := time.Now()
		_, err := s.change(ctx, unmarkAll(others[i:i+1])...)
		if err != nil && ctx.Err() != nil {
			s.kept.add(others[i], time.Since(began))
			return nil
		}
		return err
	})
}

// unmarkAll removes from each message the mark that it bore when it was read, and no other,
// with one statement for each mark; several messages may bear the same one.
func unmarkAll(marked []*document) (changes []change) {
	byMark := map[bson.ObjectID][]target{}
	for _, d := range marked {
		byMark[d.Mark.ID] = append(byMark[d.Mark.ID], targetOf(d))
	}
	for id, targets := range byMark {
		c := unmark(targets, id)
		c.where = append(c.where, bson.E{Key: "status", Value: int(postdate.Pending)})
		changes = append(changes, c)
	}
	return changes
}

// readLarge reads the payloads that the scans left out. A message that another version has
// replaced is dropped from the page.
func (s *Store) readLarge(ctx context.Context, scans []*scan) error {
	var keys keyed
	for _, c := range scans {
		for _, d := range c.chosen {
			if d.LargeBytes > 0 {
				keys.add(d.key())
			}
		}
	}
	if len(keys.ids) == 0 {
		return nil
	}
	var found map[string]*document
	err := s.within(ctx, func(ctx context.Context) (err error) {
		found, err = s.read(ctx, &keys, doc("bucket", 1, "version", 1, "large", 1))
		return err
	})
	if err != nil {
		return err
	}
	for _, c := range scans {
		c.chosen = slices.DeleteFunc(c.chosen, func(d *document) bool {
			if d.LargeBytes == 0 {
				return false
			}
			present := found[d.ID]
			if present != nil && present.moving() {
				c.leaveForLater(d)
			}
			if present == nil || present.damaged != nil || present.Version != d.Version {
				return true
			}
			d.Large = present.Large
			return false
		})
	}
	return nil
}
