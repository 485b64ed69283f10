package pebble

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// listExaminedMax bounds how many messages one page of a list looks at: a filter
// that selects few of many gives short pages, not long waits. Those of other tenants count too:
// they are in the way.
const listExaminedMax = 10_000

// listYieldEvery is after how many messages a list lets others run, so that no request waits long for it.
const listYieldEvery = 8

// List implements store.Messages. Each bucket is already in the order of execution times; List
// merges them with one iterator, which seeks. What has an entry of its own (listed.go) is in that order by itself.
func (s *Store) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.list(ctx, q, listExaminedMax)
}

func (s *Store) list(ctx context.Context, q store.ListQuery, examinedMax int) (store.ListPage, error) {
	prefix, bounds := listedPrefix(&q), spaceOnly(spaceMessage)
	if prefix != nil {
		bounds = listedBounds(prefix, &q)
	}
	iter, err := s.db.NewIter(bounds)
	if err != nil {
		return store.ListPage{}, s.readError(err)
	}
	defer iter.Close()
	l := lister{s: s, iter: iter, q: &q, prefix: prefix, examinedMax: examinedMax}
	if err := l.begin(); err != nil {
		return store.ListPage{}, s.readError(err)
	}
	defer l.states.close()
	heap.Init(&l.heads)
	page, err := l.page(ctx)
	if l.damaged > 1 {
		s.c.Log.Error("more listed messages cannot be read", "count", l.damaged-1, "tenant", q.Tenant)
	}
	if err != nil {
		return store.ListPage{}, s.readError(err)
	}
	return page, s.awaitSynced()
}

// listStart is the first key of a bucket that can belong to the page. Earlier pages showed
// everything at the cursor's time in the buckets below the cursor's.
func listStart(q *store.ListQuery, b int) []byte {
	from := appendTime(appendBucket([]byte{spaceMessage}, b), q.From)
	if q.After == nil {
		return from
	}
	var start []byte
	switch at := q.After.ExecutionTime; {
	case b < q.After.Bucket:
		start = appendTime(appendBucket([]byte{spaceMessage}, b), at+1)
	case b > q.After.Bucket:
		start = appendTime(appendBucket([]byte{spaceMessage}, b), at)
	default:
		start = messageKey(nil, postdate.Key{Bucket: b, Tenant: q.Tenant, ScheduleID: q.After.ScheduleID}, at)
		start = append(start, 0) // the next possible key
	}
	if bytes.Compare(start, from) < 0 {
		return from
	}
	return start
}

// lister merges the buckets' messages.
type lister struct {
	s      *Store
	iter   *lsm.Iterator
	q      *store.ListQuery
	prefix []byte // of the entries that it goes by; nil: it goes by all messages
	heads  listHeads

	examinedMax int // at least 2: the first may be at the cursor's own place

	states  lookup
	damaged int // how many messages could not be read
}

// begin finds the first message of each bucket, or the first entry.
func (l *lister) begin() error {
	if l.prefix != nil {
		return l.listed(l.iter.First())
	}
	for b := range l.s.c.Buckets {
		if err := l.seek(listStart(l.q, b), b); err != nil {
			return err
		}
	}
	return nil
}

// seek adds the first message of bucket b at or after start, if there is one.
func (l *lister) seek(start []byte, b int) error {
	prefix := appendBucket([]byte{spaceMessage}, b)
	if !l.iter.SeekGE(start) || !bytes.HasPrefix(l.iter.Key(), prefix) {
		return l.iter.Error() // the next seek would clear it
	}
	p := splitTimed(l.iter.Key()[len(prefix):])
	head := listHead{
		key: postdate.Key{Bucket: b, Tenant: p.Tenant, ScheduleID: p.ScheduleID}, execution: p.Time,
	}
	l.heads = append(l.heads, head)
	return nil
}

// page takes messages in order until the page is full.
func (l *lister) page(ctx context.Context) (page store.ListPage, err error) {
	last := l.q.After
	for examined, bytes := 0, 0; len(l.heads) > 0; {
		head := l.heads[0]
		if l.q.To != 0 && head.execution >= l.q.To {
			return page, nil
		}
		full := len(page.Records) == l.q.Limit || bytes >= store.PageBytesMax
		if full || examined == l.examinedMax || ctx.Err() != nil {
			page.Next = last
			return page, ctx.Err()
		}
		rec, ok, err := l.record(head)
		switch {
		case errors.Is(err, errLayout): // one damaged record must not hide the others
			if l.damaged++; l.damaged == 1 {
				l.s.c.Log.Error("a listed message cannot be read: it is passed over and stays as it is",
					"scheduleId", head.key.ScheduleID, "bucket", head.key.Bucket, "error", err)
			}
		case err != nil:
			return page, err
		}
		if ok {
			page.Records = append(page.Records, rec)
			bytes += rec.Bytes()
		}
		last = l.after(head, last)
		if examined++; examined%listYieldEvery == 0 {
			runtime.Gosched()
		}
		if err := l.advance(head); err != nil {
			return page, err
		}
	}
	return page, nil
}

// after is the position after head, and last is the one before it. Another tenant's ids must not show, not even in a
// cursor: with an empty id it is before all that the list's tenant has at that time in that bucket.
func (l *lister) after(head listHead, last *store.ListPosition) *store.ListPosition {
	at := store.ListPosition{ExecutionTime: head.execution, Bucket: head.key.Bucket}
	switch {
	case head.key.Tenant == l.q.Tenant:
		at.ScheduleID = head.key.ScheduleID
	case last != nil && last.ExecutionTime == at.ExecutionTime && last.Bucket == at.Bucket:
		return last // it is after what the list's tenant has there
	}
	return &at
}

// follow is the first key after head that can belong to the list. It passes over all that another tenant has at the
// same time in the bucket.
func (l *lister) follow(head listHead) []byte {
	switch b := head.key.Bucket; {
	case head.key.Tenant < l.q.Tenant:
		return messageKey(nil, postdate.Key{Bucket: b, Tenant: l.q.Tenant}, head.execution)
	case head.key.Tenant > l.q.Tenant:
		return appendTime(appendBucket([]byte{spaceMessage}, b), head.execution+1)
	}
	return append(messageKey(nil, head.key, head.execution), 0)
}

// advance replaces head by the message after it.
func (l *lister) advance(head listHead) error {
	heap.Pop(&l.heads)
	if l.prefix != nil {
		return l.listed(l.iter.Next())
	}
	before := len(l.heads)
	err := l.seek(l.follow(head), head.key.Bucket)
	if len(l.heads) > before {
		heap.Fix(&l.heads, before)
	}
	return err
}

// record reads a message, if the query selects it.
func (l *lister) record(head listHead) (rec postdate.Record, selected bool, err error) {
	if head.key.Tenant != l.q.Tenant || !strings.HasPrefix(head.key.ScheduleID, l.q.IDPrefix) {
		return rec, false, nil
	}
	st, found, err := l.states.state(l.s, head.key)
	if err != nil || !found || st.ExecutionTime != head.execution {
		return rec, false, err // replaced or expired in between
	}
	if l.q.Status != 0 && st.Status != l.q.Status || l.q.Channel != "" && st.Channel != l.q.Channel {
		return rec, false, nil
	}
	if l.q.Label != "" && !slices.Contains(st.Labels, l.q.Label) || !l.q.Recurring.Selects(st.Occurrence != 0) {
		return rec, false, nil // perhaps replaced in between
	}
	if l.q.StatesOnly {
		m := postdate.Message{Key: head.key, ExecutionTime: head.execution, Channel: st.Channel}
		return st.record(m), true, nil
	}
	m, err := l.s.message(head.key, head.execution)
	if errors.Is(err, lsm.ErrNotFound) {
		return rec, false, nil
	}
	return st.record(m), err == nil, err
}

// listHead is the next message of one bucket.
type listHead struct {
	key       postdate.Key
	execution postdate.Time
}

// listHeads is a heap in the order of List.
type listHeads []listHead

func (h listHeads) Len() int      { return len(h) }
func (h listHeads) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *listHeads) Push(x any)   { *h = append(*h, x.(listHead)) }

func (h listHeads) Less(i, j int) bool {
	if h[i].execution != h[j].execution {
		return h[i].execution < h[j].execution
	}
	return h[i].key.Bucket < h[j].key.Bucket
}

func (h *listHeads) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
