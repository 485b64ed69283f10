package mongo

import (
	"context"
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// appendMax bounds how many messages of different calls share a write.
const appendMax = segmentMessages

// appends gathers what arrives for each inbox while a write to it is under way, so that each
// process writes to an inbox with one command at a time.
type appends struct {
	mu      sync.Mutex
	waiting map[string]*appending // by inbox; only while there is something to do
}

// appending is what waits for one inbox.
type appending struct{ calls []*appendCall }

// appendCall is what one call appends to one inbox.
type appendCall struct {
	letters []letter
	done    chan struct{}
	err     error
}

// AppendInbox implements store.Inbox.
func (s *Store) AppendInbox(ctx context.Context, messages []store.InboxMessage) error {
	if err := ctx.Err(); err != nil {
		return postdate.E(postdate.KindUnavailable, "given up before it was begun: %w", err)
	}
	calls := map[string]*appendCall{}
	for i := range messages {
		m := &messages[i]
		if len(m.Payload) > payloadMax {
			return errTooLarge(len(m.Payload))
		}
		inbox := inboxID(m.Tenant, m.Inbox)
		if calls[inbox] == nil {
			calls[inbox] = &appendCall{done: make(chan struct{})}
		}
		calls[inbox].letters = append(calls[inbox].letters, letterOf(m))
	}
	for inbox, call := range calls {
		s.enqueue(inbox, call)
	}
	for _, call := range calls {
		select {
		case <-call.done:
			if call.err != nil {
				return call.err
			}
		case <-ctx.Done():
			return postdate.E(postdate.KindUnknown, "given up while it was under way: %w", ctx.Err())
		}
	}
	return nil
}

// enqueue queues a call for its inbox, and starts a drain if none runs.
func (s *Store) enqueue(inbox string, call *appendCall) {
	a := &s.appends
	a.mu.Lock()
	defer a.mu.Unlock()
	queue := a.waiting[inbox]
	if queue == nil {
		queue = &appending{}
		a.waiting[inbox] = queue
		go s.drain(inbox, queue)
	}
	queue.calls = append(queue.calls, call)
}

// drain writes what waits for an inbox until nothing does. It keeps the last segment from one
// write to the next, since nobody else in this process writes to the inbox.
func (s *Store) drain(inbox string, queue *appending) {
	var last *segment
	for {
		calls, letters := s.nextAppends(inbox, queue)
		if len(calls) == 0 {
			return
		}
		err := s.within(context.Background(), func(ctx context.Context) (err error) {
			last, err = s.appendLetters(ctx, inbox, last, letters)
			return err
		})
		for _, c := range calls {
			c.err = writeError("appending to an inbox", err)
			close(c.done)
		}
	}
}

// nextAppends takes what waits, at least one call. If nothing waits, it returns nothing and
// forgets the inbox.
func (s *Store) nextAppends(inbox string, queue *appending) (calls []*appendCall, letters []letter) {
	a := &s.appends
	a.mu.Lock()
	defer a.mu.Unlock()
	n, count := 0, 0
	for n < len(queue.calls) && (n == 0 || count+len(queue.calls[n].letters) <= appendMax) {
		count += len(queue.calls[n].letters)
		n++
	}
	if n == 0 {
		delete(a.waiting, inbox)
		return nil, nil
	}
	calls = queue.calls[:n:n]
	queue.calls = append(queue.calls[:0:0], queue.calls[n:]...)
	for _, c := range calls {
		letters = append(letters, c.letters...)
	}
	return calls, letters
}

// appendLetters appends all or none, and starts over if another node appends to the inbox in
// between. last is the inbox's last segment, nil if it must be read first. It returns the last
// segment for the next call, in the same sense.
func (s *Store) appendLetters(ctx context.Context, inbox string, last *segment, letters []letter) (*segment, error) {
	parts := partsOf(letters)
	for {
		var err error
		if len(parts) == 1 {
			last, err = s.appendPart(ctx, inbox, last, parts[0])
		} else {
			last, err = nil, s.transaction(ctx, func(ctx context.Context) error {
				for _, part := range parts { // each but the last fills a segment
					if _, err := s.appendPart(ctx, inbox, nil, part); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err != errMoved {
			return last, err
		}
		if ctx.Err() != nil {
			return nil, postdate.E(postdate.KindUnavailable,
				"appending to an inbox: other nodes were always quicker: try again")
		}
	}
}

// partsOf splits what is too large for one document. Every part but the last is larger than a
// segment, and so fills the one it goes to.
func partsOf(letters []letter) [][]letter {
	var parts [][]letter
	from, size := 0, int64(0)
	for i := range letters {
		n := letters[i].bytes()
		if i > from && size+n > partBytes {
			parts = append(parts, letters[from:i])
			from, size = i, 0
		}
		size += n
	}
	return append(parts, letters[from:])
}

// errMoved says that another process appended in between.
var errMoved error = postdate.E(postdate.KindConflict, "another node appended to the inbox in between")

// appendPart pushes letters, which fit into one document, to the last segment, or begins the next
// one. last, and what it returns, are as in appendLetters; with an error it returns nil.
func (s *Store) appendPart(ctx context.Context, inbox string, last *segment, letters []letter) (_ *segment, err error) {
	if last == nil {
		if last, err = s.lastSegment(ctx, inbox); err != nil {
			return nil, readError("appending to an inbox", err)
		}
	}
	var size int64
	for i := range letters {
		size += letters[i].bytes()
	}
	oldest := slices.MinFunc(letters, func(a, b letter) int { return int(a.DeliveredAt - b.DeliveredAt) }).DeliveredAt
	if last == nil || last.full() {
		g := segment{Bucket: s.inboxBucket(inbox), Count: int64(len(letters)), Bytes: size, Oldest: &oldest,
			Messages: letters}
		if last != nil {
			g.Number, g.Start, g.Base = last.Number+1, last.end(), last.end()
		}
		g.ID = segmentID(inbox, g.Number)
		err = s.once(ctx, func(ctx context.Context) error {
			_, err := s.inboxes.InsertOne(ctx, &g)
			return err
		})
		if driver.IsDuplicateKeyError(err) {
			return nil, errMoved
		}
		if err != nil {
			return nil, err
		}
		g.Messages = nil
		return &g, nil
	}
	room := doc("_id", last.ID, "count", doc("$lt", segmentMessages), "bytes", doc("$lt", segmentBytes))
	err = s.once(ctx, func(ctx context.Context) error {
		r, err := s.inboxes.UpdateOne(ctx, room, bson.D{
			{Key: "$push", Value: doc("messages", doc("$each", letters))},
			{Key: "$inc", Value: doc("count", int64(len(letters)), "bytes", size)},
			{Key: "$min", Value: doc("oldest", oldest)},
		}, options.UpdateOne().SetHint(indexID))
		if err == nil && r.MatchedCount == 0 {
			return errMoved
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	// Others may have pushed too: the counts are lower bounds. A segment that is full by them
	// is read again before the next one is begun.
	last.Count, last.Bytes = last.Count+int64(len(letters)), last.Bytes+size
	if last.full() {
		last = nil
	}
	return last, nil
}
