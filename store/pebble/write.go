package pebble

import (
	"context"
	"errors"
	"fmt"
	"slices"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// chunkMax and chunkBytesMax are how many items, and how many bytes of messages besides the last one's, are decided
// and applied under one hold of the locks. They bound how long a large batch keeps a single call waiting. Pebble also
// makes a memtable of every batch that is larger than half of one: a few of these stop all writes.
const (
	chunkMax      = 256
	chunkBytesMax = 4 << 20
)

// unsyncedMax is how many bytes of messages one call may apply, besides the last chunk's, before it waits for the
// disk. Until then its batches stay in memory.
const unsyncedMax = 4 * chunkBytesMax

// writer gathers one chunk's writes. Under the buckets' locks it reads, decides
// and applies; then, without them, it waits for the disk. Pebble writes its log in
// the order of the applies, so one sync covers all that was applied before.
type writer struct {
	s       *Store
	batch   *lsm.Batch
	read    lookup
	counts  []store.Change   // of what is pending
	channel postdate.Channel // the last one that was counted
	slot    store.Slot       // its slot
	key     []byte           // scratch
	value   []byte           // scratch

	box    *inbox // that of append; nil: none. It is locked until apply
	number uint64 // the last one given there

	applied bool                   // something was written
	written map[postdate.Key]state // what the chunk wrote, which cannot be read yet; nil: it is not asked for
}

// remember makes a chunk of n items see what it wrote before: two of them may be about the same
// message, or about a series and one of its occurrences.
func (w *writer) remember(n int) {
	if n > 1 {
		w.written = make(map[postdate.Key]state, n)
	}
}

// state reads a message's state as it was when the locks were taken, or as the chunk wrote it. If it
// is PENDING, its payload's size is known.
func (w *writer) state(key postdate.Key) (state, bool, error) {
	if st, is := w.written[key]; is {
		return st, true, nil
	}
	st, found, err := w.read.state(w.s, key)
	if found && st.Status == postdate.Pending && st.PayloadBytes == unsized {
		st.PayloadBytes = w.s.payloadBytes(key, st.ExecutionTime)
	}
	return st, found, err
}

func (s *Store) writer() *writer { return &writer{s: s, batch: s.db.NewBatch()} }

func (w *writer) setState(key postdate.Key, st *state) {
	if w.written != nil {
		w.written[key] = *st
	}
	w.key = stateKey(w.key[:0], key)
	w.value = appendState(w.value[:0], st, st.form())
	w.batch.Set(w.key, w.value, nil)
	w.eachPlace(key, st, func(form byte) {
		if w.value = w.value[:0]; form != 0 {
			w.value = appendState(w.value, st, form)
		}
		w.batch.Set(w.key, w.value, nil)
	})
	if st.Status == postdate.Pending {
		w.count(key.Tenant, st, 1)
		w.s.low[key.Bucket].note(bucket.PositionOf(key, st.AttemptTime))
	}
	if st.Status.Final() {
		w.key = finishedKey(w.key[:0], st.SettledAt, key)
		w.value = appendTimes(w.value[:0], st.ExecutionTime)
		w.batch.Set(w.key, w.value, nil)
	}
	if st.Status == postdate.DeliveryFailed {
		w.key = entryKey(w.key[:0], spaceFailed, key, st.ExecutionTime)
		w.batch.Set(w.key, nil, nil)
	}
}

// unplace removes a PENDING message from the places where it waits. One that an earlier version
// parked has none in the due space, which is no fault.
func (w *writer) unplace(key postdate.Key, st *state) {
	w.eachPlace(key, st, func(byte) { w.batch.Delete(w.key, nil) })
	if st.Status == postdate.Pending {
		w.count(key.Tenant, st, -1)
	}
}

// eachPlace calls do for each place where a message in state st waits, with the place's key in
// w.key, and passes the layout of the state there; 0: there is none.
func (w *writer) eachPlace(key postdate.Key, st *state, do func(form byte)) {
	if st.Status != postdate.Pending {
		return
	}
	p := bucket.PositionOf(key, st.AttemptTime)
	w.key = timedKey(w.key[:0], spaceDue, key.Bucket, p)
	do(layoutLean)
	if st.Parked {
		w.key = parkedKey(w.key[:0], key.Bucket, st.route(key.Tenant), p)
		do(st.form())
	}
	if st.deferred() {
		w.key = entryKey(w.key[:0], spaceDeferred, key, st.ExecutionTime)
		do(0)
	}
}

func (w *writer) setMessage(m *postdate.Message) {
	w.key = messageKey(w.key[:0], m.Key, m.ExecutionTime)
	w.value = appendMessage(w.value[:0], m)
	w.batch.Set(w.key, w.value, nil)
	for _, label := range m.Labels {
		w.key = labelKey(w.key[:0], label, m.Key, m.ExecutionTime)
		w.batch.Set(w.key, nil, nil)
	}
	if m.Recurrence != nil {
		w.key = entryKey(w.key[:0], spaceSeries, m.Key, m.ExecutionTime)
		w.batch.Set(w.key, nil, nil)
	}
}

// deleteMessage deletes the message with this state from where setMessage put it.
func (w *writer) deleteMessage(key postdate.Key, st *state) {
	w.key = messageKey(w.key[:0], key, st.ExecutionTime)
	w.batch.Delete(w.key, nil)
	for _, label := range st.Labels {
		w.key = labelKey(w.key[:0], label, key, st.ExecutionTime)
		w.batch.Delete(w.key, nil)
	}
	if st.Occurrence != 0 {
		w.key = entryKey(w.key[:0], spaceSeries, key, st.ExecutionTime)
		w.batch.Delete(w.key, nil)
	}
}

// forget deletes a message that has ended.
func (w *writer) forget(key postdate.Key, st *state) {
	w.key = stateKey(w.key[:0], key)
	w.batch.Delete(w.key, nil)
	w.deleteMessage(key, st)
	w.unend(key, st)
}

// unend removes a message that has ended from where setState put it as such.
func (w *writer) unend(key postdate.Key, st *state) {
	w.unfinish(key, st.SettledAt)
	if st.Status == postdate.DeliveryFailed {
		w.key = entryKey(w.key[:0], spaceFailed, key, st.ExecutionTime)
		w.batch.Delete(w.key, nil)
	}
}

// unfinish removes a message from the order in which final ones expire.
func (w *writer) unfinish(key postdate.Key, settledAt postdate.Time) {
	w.key = finishedKey(w.key[:0], settledAt, key)
	w.batch.Delete(w.key, nil)
}

// openInbox locks the inbox that append writes to, until apply. Nothing may fail between.
func (w *writer) openInbox(box *inbox) {
	box.mu.Lock()
	w.box, w.number = box, box.last
}

// append puts a message at the end of the open inbox.
func (w *writer) append(m *store.InboxMessage) {
	if !w.box.listed && w.number == w.box.last {
		w.key = orderKey(w.key[:0], m.DeliveredAt, m.Tenant, m.Inbox)
		w.batch.Set(w.key, nil, nil)
	}
	w.number++
	w.key = inboxKey(w.key[:0], m.Tenant, m.Inbox, w.number)
	w.value = appendInboxMessage(w.value[:0], m)
	w.batch.Set(w.key, w.value, nil)
}

// apply makes the writes visible, in the order of the log, and begins their
// sync. It is called under the locks.
func (w *writer) apply() {
	if w.batch.Empty() {
		return
	}
	w.writeCounts()
	w.applied = true // Pebble empties a batch that is larger than half a memtable
	w.s.unsynced.Add(1)
	if err := w.s.db.ApplyNoSyncWait(w.batch, lsm.Sync); err != nil {
		// The partition records in memory are ahead: the next claim would count as written.
		w.s.c.fail(fmt.Errorf("a write was not taken: %w", err))
	}
	w.s.pending.Add(w.counts...)
	if w.box != nil {
		w.box.last, w.box.listed = w.number, true
		w.box.mu.Unlock()
	}
}

// sync waits until everything applied is on disk, and everything that the decisions rest on,
// even if they wrote nothing. If it fails, what was applied can be read and may be lost: the
// process ends before anything answers. Reads that saw it wait for a sync of their own, as
// unsynced tells them to, and that fails as well.
func (w *writer) sync() error {
	defer w.batch.Close()
	if !w.applied {
		return unknown(w.s.db.LogData([]byte{0}, lsm.Sync))
	}
	if err := w.batch.SyncWait(); err != nil {
		w.s.c.fail(fmt.Errorf("a write did not reach the disk: %w", err))
	}
	w.s.unsynced.Add(-1)
	if w.box != nil {
		w.box.reached(w.number) // the log is in order: all before is on disk too
	}
	return nil
}

// awaitSynced waits until everything that a read may have seen is on disk: what is
// answered, or published, must not rest on what a power loss can take back.
func (s *Store) awaitSynced() error {
	if s.unsynced.Load() == 0 {
		return nil
	}
	return unknown(s.db.LogData([]byte{0}, lsm.Sync))
}

// unknown is the error of a failed sync: the bytes may be on disk.
func unknown(err error) error {
	if err == nil {
		return nil
	}
	return postdate.E(postdate.KindUnknown, "the store's write failed on the way to the disk: %w", err)
}

// lock locks buckets in ascending order, each once, and returns how to unlock them.
func (s *Store) lock(buckets []int) (unlock func()) {
	slices.Sort(buckets)
	buckets = slices.Compact(buckets)
	for _, b := range buckets {
		s.locks[b].Lock()
	}
	return func() {
		for _, b := range buckets {
			s.locks[b].Unlock()
		}
	}
}

// failure is the error of some items of a call.
type failure struct {
	from, to int
	err      error
}

// under runs decide for each chunk of n items under the locks of its buckets, then waits for the disk. of tells an
// item's bucket, and how many bytes of messages it may write; decide gets the bounds of its chunk. Chunks fail each
// alone.
func (s *Store) under(ctx context.Context, n int, of func(i int) (bucket, bytes int),
	decide func(w *writer, from, to int) error) (failures []failure) {
	type chunk struct {
		w        *writer
		from, to int
	}
	var done []chunk
	doneBytes := 0
	await := func() {
		for _, c := range done {
			if err := c.w.sync(); err != nil {
				failures = append(failures, failure{c.from, c.to, err})
			}
		}
		done, doneBytes = nil, 0
	}
	for from, to := 0, 0; from < n; from = to {
		if doneBytes >= unsyncedMax {
			await()
		}
		if err := ctx.Err(); err != nil {
			failures = append(failures, failure{from, n, postdate.E(postdate.KindUnavailable,
				"given up before it was written: %w", err)})
			break
		}
		buckets, bytes := make([]int, 0, min(chunkMax, n-from)), 0
		for ; to < n && len(buckets) < chunkMax && bytes < chunkBytesMax; to++ {
			bucket, size := of(to)
			buckets, bytes = append(buckets, bucket), bytes+size
		}
		w := s.writer()
		unlock := s.lock(buckets)
		err := decide(w, from, to)
		w.read.close()
		if err == nil {
			w.apply()
		}
		unlock()
		if err != nil {
			w.batch.Close()
			failures = append(failures, failure{from, to, s.readError(err)})
			continue
		}
		done, doneBytes = append(done, chunk{w, from, to}), doneBytes+bytes
	}
	await()
	return failures
}

// underAll is under for a call that has one error for all of its items. An error that leaves an outcome unknown
// counts before others.
func (s *Store) underAll(ctx context.Context, n int, of func(i int) (bucket, bytes int),
	decide func(w *writer, from, to int) error) (err error) {
	for _, f := range s.under(ctx, n, of, decide) {
		if postdate.KindOf(err) != postdate.KindUnknown {
			err = f.err
		}
	}
	return err
}

// readError is the error of a decision that could not be made: nothing was written.
func (s *Store) readError(err error) error {
	if err == nil {
		return nil
	}
	var e *postdate.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return postdate.E(postdate.KindUnavailable, "the store in %s was not read in time: try again (%w)",
			s.c.Dir, err)
	}
	return postdate.E(postdate.KindInternal, "the store in %s cannot be read: %w", s.c.Dir, err)
}

// state reads a message's state as it is.
func (s *Store) state(key postdate.Key) (state, bool, error) {
	var l lookup
	defer l.close()
	return l.state(s, key)
}

// message reads a message whose execution time is known.
func (s *Store) message(key postdate.Key, execution postdate.Time) (postdate.Message, error) {
	v, closer, err := s.db.Get(messageKey(nil, key, execution))
	if err != nil {
		return postdate.Message{}, err
	}
	defer closer.Close()
	return readMessage(v, key, execution)
}
