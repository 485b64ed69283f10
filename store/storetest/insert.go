package storetest

import (
	"fmt"
	"sync"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

func insertion() []check {
	return []check{
		{"a message is there whole, and PENDING", func(x *trial) {
			m := x.add(t0)
			x.wantRecord(x.get(m.Key), fresh(m))
		}},
		{"the same id with an equal digest changes nothing and answers what is there", insertAgain},
		{"the same id with an equal digest answers the end of a message that ended", insertAfterEnd},
		{"the same id with another digest is KindExists and changes nothing", func(x *trial) {
			m := x.add(t0)
			r := x.store.Insert(x.ctx, []postdate.Message{changed(m)})[0]
			x.wantKind(r.Err, postdate.KindExists)
			x.wantRecord(x.get(m.Key), fresh(m))
		}},
		{"after a replace the digest that counts is that of the new version", insertAfterReplace},
		{"after a replace the request that made the message is answered as before", insertOriginal},
		{"each message of a batch stands or falls alone, and results are in order", insertBatch},
		{"two of the same id in one batch are as two in a row", insertTwins},
		{"the same id in two tenants is two messages", insertTenants},
		{"a large batch over all buckets is there whole", insertLarge},
		{"of many that insert one id at once exactly one creates it", insertRace},
		{"Get is KindNotFound for an id that was never inserted", func(x *trial) {
			m := x.message(t0)
			_, err := x.store.Get(x.ctx, m.Key)
			x.wantKind(err, postdate.KindNotFound)
		}},
	}
}

// insertAgain repeats a request after a delay: the digest is the same, but the request resolves
// to a later time.
func insertAgain(x *trial) {
	m := x.add(t0)
	later := m
	later.ExecutionTime += 700
	for range 2 {
		r := x.store.Insert(x.ctx, []postdate.Message{later})[0]
		if want := (store.Inserted{ExecutionTime: t0, Status: postdate.Pending}); r != want {
			x.Errorf("inserting it again: got %+v, want %+v", r, want)
		}
	}
	x.wantRecord(x.get(m.Key), fresh(m))
}

// insertOriginal repeats the request that made a message which was replaced twice since.
func insertOriginal(x *trial) {
	first := x.add(t0)
	second := changed(first, withPayload(100))
	second.ExecutionTime, second.Original = t0+60, first.Origin()
	x.replace(second)
	third := changed(second)
	third.ExecutionTime, third.Original = t0+90, second.Origin()
	want := x.replace(third)
	again := func(m postdate.Message, want store.Inserted) {
		x.Helper()
		m.ExecutionTime += 700
		if r := x.store.Insert(x.ctx, []postdate.Message{m})[0]; r != want {
			x.Errorf("inserting it again: got %+v, want %+v", r, want)
		}
	}
	again(first, store.Inserted{ExecutionTime: t0, Status: postdate.Pending})
	again(third, store.Inserted{ExecutionTime: t0 + 90, Status: postdate.Pending})
	x.wantKind(x.store.Insert(x.ctx, []postdate.Message{second})[0].Err, postdate.KindExists)
	x.wantRecord(x.get(first.Key), want)
	x.wantCancelled(third)
	again(first, store.Inserted{ExecutionTime: t0, Status: postdate.Cancelled})
}

func insertAfterEnd(x *trial) {
	delivered, failed, cancelled := x.add(t0), x.add(t0), x.add(t0+1)
	token := x.own(home)
	x.claim(everything(home, token, t0))
	x.settle(x.settlement(delivered, token, store.SettleDelivered), x.settlement(failed, token, store.SettleFailed))
	x.wantCancelled(cancelled)
	for m, want := range map[*postdate.Message]postdate.Status{
		&delivered: postdate.Delivered, &failed: postdate.DeliveryFailed, &cancelled: postdate.Cancelled,
	} {
		r := x.store.Insert(x.ctx, []postdate.Message{*m})[0]
		if want := (store.Inserted{ExecutionTime: m.ExecutionTime, Status: want}); r != want {
			x.Errorf("inserting it again after its end: got %+v, want %+v", r, want)
		}
		x.wantStatus(*m, want)
	}
}

func insertAfterReplace(x *trial) {
	m := x.add(t0)
	next := changed(m)
	next.ExecutionTime = t0 + 50
	if _, err := Replace(x.ctx, x.store, next, x.first[m.Key]); err != nil {
		x.Fatalf("Replace: %v", err)
	}
	results := x.store.Insert(x.ctx, []postdate.Message{m, next})
	x.wantKind(results[0].Err, postdate.KindExists)
	if want := (store.Inserted{ExecutionTime: t0 + 50, Status: postdate.Pending}); results[1] != want {
		x.Errorf("inserting the new version: got %+v, want %+v", results[1], want)
	}
}

func insertBatch(x *trial) {
	known, taken := x.add(t0), x.add(t0+1)
	first, last := x.message(t0+2), x.messageIn(abroad, tenant, t0+3)
	results := x.store.Insert(x.ctx, []postdate.Message{first, changed(taken), known, last})
	if len(results) != 4 {
		x.Fatalf("Insert of 4 messages answered %d results", len(results))
	}
	x.wantKind(results[1].Err, postdate.KindExists)
	for i, want := range map[int]store.Inserted{
		0: {Created: true, ExecutionTime: t0 + 2, Status: postdate.Pending},
		2: {ExecutionTime: t0, Status: postdate.Pending},
		3: {Created: true, ExecutionTime: t0 + 3, Status: postdate.Pending},
	} {
		if results[i] != want {
			x.Errorf("item %d: got %+v, want %+v", i, results[i], want)
		}
	}
	for _, m := range []postdate.Message{known, taken, first, last} {
		x.wantRecord(x.get(m.Key), fresh(m))
	}
}

func insertTwins(x *trial) {
	equal, other := x.message(t0), x.message(t0)
	later := equal
	later.ExecutionTime++
	results := x.store.Insert(x.ctx, []postdate.Message{equal, other, later, changed(other)})
	for i, want := range []store.Inserted{
		{Created: true, ExecutionTime: t0, Status: postdate.Pending},
		{Created: true, ExecutionTime: t0, Status: postdate.Pending},
		{ExecutionTime: t0, Status: postdate.Pending},
	} {
		if results[i] != want {
			x.Errorf("item %d: got %+v, want %+v", i, results[i], want)
		}
	}
	x.wantKind(results[3].Err, postdate.KindExists)
	x.wantRecord(x.get(equal.Key), fresh(equal))
	x.wantRecord(x.get(other.Key), fresh(other))
}

func insertTenants(x *trial) {
	mine := x.messageIn(home, "tenant-a", t0)
	theirs := changed(mine)
	theirs.Tenant = "tenant-b" // in the same bucket, which makes it harder
	x.insert(mine)
	_, err := x.store.Get(x.ctx, theirs.Key)
	x.wantKind(err, postdate.KindNotFound)
	x.insert(theirs)
	x.wantRecord(x.get(mine.Key), fresh(mine))
	x.wantRecord(x.get(theirs.Key), fresh(theirs))
}

func insertLarge(x *trial) {
	var batch []postdate.Message
	for i := range 1500 {
		batch = append(batch, x.messageIn(i%x.store.Buckets(), tenant, t0+postdate.Time(i%7)))
	}
	x.insert(batch...)
	for _, m := range batch {
		x.wantRecord(x.get(m.Key), fresh(m))
	}
}

func insertRace(x *trial) {
	const contenders = 16
	m := x.message(t0)
	var group sync.WaitGroup
	results := make([]store.Inserted, contenders)
	for i := range contenders {
		mine := m
		if i%2 == 1 {
			mine = changed(m, func(m *postdate.Message) { m.Payload = fmt.Append(nil, i) })
		}
		group.Go(func() {
			// A store may answer that others are at it and surely nothing was done: then it is asked again.
			for postdate.KindOf(results[i].Err) == postdate.KindUnavailable || results[i] == (store.Inserted{}) {
				results[i] = x.store.Insert(x.ctx, []postdate.Message{mine})[0]
			}
		})
	}
	group.Wait()
	created := 0
	for _, r := range results {
		if r.Created {
			created++
		} else if r.Err != nil {
			x.wantKind(r.Err, postdate.KindExists)
		}
	}
	if created != 1 {
		x.Errorf("%d inserts of one id answered that they created it, want 1", created)
	}
}
