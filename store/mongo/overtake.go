package mongo

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
)

// overtake removes the marks of those who are about to change messages that the
// scans chose. Whose mark is removed cannot write any more; where it was gone
// already, its bearer may have written, and the message is looked at once more.
func (s *Store) overtake(ctx context.Context, scans []*scan) error {
	var keys keyed
	var marks []bson.ObjectID
	for _, c := range scans {
		for _, d := range c.chosen {
			if meet(d.Mark, c.Token) == meetOvertake {
				keys.add(d.key())
				marks = append(marks, d.Mark.ID)
			}
		}
	}
	if len(marks) == 0 {
		return nil
	}
	var now map[string]*document
	err := s.within(ctx, func(ctx context.Context) error {
		filter := append(keys.filter(), bson.E{Key: "mark.id", Value: anyOf(marks)}, bson.E{Key: "status", Value: int(postdate.Pending)})
		var matched int64
		err := s.repeat(ctx, func(ctx context.Context) error {
			r, err := s.messages.UpdateMany(ctx, filter, doc("$unset", doc("mark", "")), options.UpdateMany().SetHint(indexID))
			if err == nil {
				matched = r.MatchedCount
			}
			return err
		})
		if err != nil || matched == int64(len(marks)) {
			return err
		}
		now, err = s.read(ctx, keys.filter(), stateFields)
		return err
	})
	if err != nil || now == nil {
		return err
	}
	for _, c := range scans {
		c.chosen = slices.DeleteFunc(c.chosen, func(d *document) bool {
			if meet(d.Mark, c.Token) != meetOvertake {
				return false
			}
			present := now[d.ID]
			return present == nil || !stillDue(d.state(), present.state())
		})
	}
	return nil
}

// readLarge reads the payloads that the scans left out. A message that another
// version took the place of goes from the page.
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
		found, err = s.read(ctx, keys.filter(), doc("bucket", 1, "version", 1, "large", 1))
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
			if present == nil || present.Version != d.Version {
				return true
			}
			d.Large = present.Large
			return false
		})
	}
	return nil
}
