package pebble

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// listExaminedMax bounds how many messages one page of a list looks at: a filter
// that selects few of many gives short pages, not long waits. Those of other tenants count too:
// they are in the way.
const listExaminedMax = 10_000

// listYieldEvery is after how many messages a list lets others run, so that no request waits long for it.
const listYieldEvery = 8

// List implements store.Messages. What has an entry of its own (listed.go) is in the order of the list by itself, and
// so is each bucket. List merges these; one iterator seeks through all buckets.
func (s *Store) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.list(ctx, q, listExaminedMax)
}

func (s *Store) list(ctx context.Context, q store.ListQuery, examinedMax int) (store.ListPage, error) {
	l := lister{s: s, q: &q, examinedMax: examinedMax}
	defer l.close()
	if err := l.begin(); err != nil {
		return store.ListPage{}, s.readError(err)
	}
	page, err := l.page(ctx)
	if l.damaged > 1 {
		s.c.Log.Error("more listed messages cannot be read", "count", l.damaged-1, "tenant", q.Tenant)
	}
	if err != nil {
		return store.ListPage{}, s.readError(err)
	}
	return page, s.awaitSynced()
}

// lister merges the entries that a list goes by, and the buckets.
type lister struct {
	s     *Store
	q     *store.ListQuery
	heads listHeads

	entries *lsm.Iterator   // nil: the list goes by none
	prefix  []byte          // of the entries
	buckets *lsm.Iterator   // nil: the list goes by entries alone
	space   byte            // of the buckets' keys
	lows    []postdate.Time // nothing waits before these in the buckets; nil: it does not go by the due space

	examinedMax int // at least 2: the first may be at the cursor's own place

	states  lookup
	damaged int // how many messages could not be read
}

// begin finds the first entry, and the first message of each bucket.
func (l *lister) begin() (err error) {
	l.prefix, l.space = listedBy(l.q)
	switch l.space {
	case spaceMessage:
		l.buckets, err = l.s.db.NewIter(spaceOnly(spaceMessage))
	case spaceDue:
		l.q.To = min(cmp.Or(l.q.To, postdate.Far), postdate.LatestTime+1) // what is paused waits beyond
		l.buckets, l.lows, err = l.s.waiting()
	}
	switch {
	case err != nil || l.prefix == nil:
	case l.buckets == nil:
		l.entries, err = l.s.db.NewIter(listedBounds(l.prefix, l.q))
	default: // of the same moment: what is deferred in between would be missed, or seen twice
		l.entries, err = l.buckets.Clone(lsm.CloneOptions{IterOptions: listedBounds(l.prefix, l.q)})
	}
	if err == nil && l.entries != nil {
		err = l.listed(l.entries.First())
	}
	for b := 0; err == nil && l.buckets != nil && b < l.s.c.Buckets; b++ {
		err = l.seek(l.start(b), b)
	}
	heap.Init(&l.heads)
	return err
}

func (l *lister) close() {
	for _, iter := range []*lsm.Iterator{l.entries, l.buckets} {
		if iter != nil {
			iter.Close()
		}
	}
	l.states.close()
}

// start is the first key of a bucket that can belong to the page. Earlier pages showed everything at the cursor's time
// in the buckets below the cursor's.
func (l *lister) start(b int) []byte {
	from := bucket.Position{Time: l.q.From}
	if l.lows != nil {
		from.Time = max(from.Time, l.lows[b])
	}
	switch at := l.q.After; {
	case at == nil:
	case b < at.Bucket:
		from = from.Latest(bucket.UpTo(at.ExecutionTime))
	case b > at.Bucket:
		from = from.Latest(bucket.Position{Time: at.ExecutionTime})
	default: // the next possible id
		p := bucket.Position{Time: at.ExecutionTime, Tenant: l.q.Tenant, ScheduleID: at.ScheduleID + "\x00"}
		from = from.Latest(p)
	}
	return timedKey(nil, l.space, b, from)
}

// seek adds the first message of bucket b at or after start, if there is one.
func (l *lister) seek(start []byte, b int) error {
	prefix := appendBucket([]byte{l.space}, b)
	l.buckets.SeekGEWithLimit(start, after(prefix)) // deleted keys of other buckets are not stepped over
	if !l.buckets.Valid() || !bytes.HasPrefix(l.buckets.Key(), prefix) {
		return l.buckets.Error() // the next seek would clear it
	}
	p := splitTimed(l.buckets.Key()[len(prefix):])
	head := listHead{
		key: postdate.Key{Bucket: b, Tenant: p.Tenant, ScheduleID: p.ScheduleID}, execution: p.Time,
	}
	if l.space == spaceDue && p.Tenant == l.q.Tenant {
		st, err := readState(l.buckets.Value())
		head.deferred = err == nil && st.deferred() // if this copy is damaged, record reads the state itself
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
	next := bucket.Position{Time: head.execution, Tenant: l.q.Tenant}
	switch {
	case head.key.Tenant > l.q.Tenant:
		next = bucket.UpTo(head.execution)
	case head.key.Tenant == l.q.Tenant:
		next.ScheduleID = head.key.ScheduleID + "\x00" // the next possible id
	}
	return timedKey(nil, l.space, head.key.Bucket, next)
}

// advance replaces head by what comes after it.
func (l *lister) advance(head listHead) (err error) {
	heap.Pop(&l.heads)
	before := len(l.heads)
	if head.entry {
		err = l.listed(l.entries.Next())
	} else {
		err = l.seek(l.follow(head), head.key.Bucket)
	}
	if len(l.heads) > before {
		heap.Fix(&l.heads, before)
	}
	return err
}

// record reads a message, if the query selects it.
func (l *lister) record(head listHead) (rec postdate.Record, selected bool, err error) {
	if head.deferred || head.key.Tenant != l.q.Tenant || !strings.HasPrefix(head.key.ScheduleID, l.q.IDPrefix) {
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

// listHead is the next message of one bucket, or the next entry.
type listHead struct {
	key       postdate.Key
	execution postdate.Time // of what is deferred, in the due space: its attempt time
	entry     bool
	deferred  bool // it is passed over here: its entry lists it
}

// listHeads is a heap in the order of List. Ids count too: an entry may be at the same time and in the same bucket as a
// message of that bucket.
type listHeads []listHead

func (h listHeads) Len() int      { return len(h) }
func (h listHeads) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *listHeads) Push(x any)   { *h = append(*h, x.(listHead)) }

func (h listHeads) Less(i, j int) bool {
	a, b := &h[i], &h[j]
	return cmp.Or(cmp.Compare(a.execution, b.execution), cmp.Compare(a.key.Bucket, b.key.Bucket),
		strings.Compare(a.key.Tenant, b.key.Tenant), strings.Compare(a.key.ScheduleID, b.key.ScheduleID)) < 0
}

func (h *listHeads) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
