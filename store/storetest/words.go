package storetest

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

const (
	t0      = postdate.Time(1_900_000_000_000) // when most checks begin
	home    = 2                                // the bucket of checks that need only one
	abroad  = 3                                // another one
	tenant  = postdate.DefaultTenant
	orders  = "rabbitmq:orders"
	plenty  = 1000    // more messages than a check has, if the limit does not matter
	roomy   = 1 << 30 // bytes, likewise
	pageMax = 10_000  // pages, before a scan or a list counts as endless
)

type edit = func(*postdate.Message)

func onRoute(r postdate.Route) edit {
	return func(m *postdate.Message) {
		m.Tenant, m.Channel = r.Split()
		m.Priority = r.Priority()
	}
}

func withPayload(size int) edit {
	return func(m *postdate.Message) { m.Payload = make([]byte, size) }
}

// message makes a small message that is due at a time. Ids ascend in the order in which they
// are made, and all belong to the bucket home.
func (x *trial) message(at postdate.Time, edits ...edit) postdate.Message {
	return x.messageIn(home, tenant, at, edits...)
}

func (x *trial) messageIn(b int, tenant string, at postdate.Time, edits ...edit) postdate.Message {
	for {
		x.made++
		m := postdate.Message{
			Key: postdate.Key{Tenant: tenant}, Channel: orders, ExecutionTime: at, CreatedAt: t0 - 5000,
			Payload: []byte(fmt.Sprintf(`{"n":%d}`, x.made)), ContentType: "application/json",
		}
		for _, e := range edits {
			e(&m)
		}
		if m.Key = bucket.KeyOf(m.Tenant, fmt.Sprintf("m-%07d", x.made), x.store.Buckets()); m.Bucket != b {
			continue
		}
		m.Digest = postdate.DigestOf(&m, at.String())
		return m
	}
}

// changed is m with other content under the same id.
func changed(m postdate.Message, edits ...edit) postdate.Message {
	m.Payload = []byte(`{"other":true}`)
	for _, e := range edits {
		e(&m)
	}
	m.Digest = postdate.DigestOf(&m, m.ExecutionTime.String())
	return m
}

// insert puts messages in and expects all of them to be created.
func (x *trial) insert(messages ...postdate.Message) {
	x.Helper()
	results := x.store.Insert(x.ctx, messages)
	if len(results) != len(messages) {
		x.Fatalf("Insert of %d messages answered %d results", len(messages), len(results))
	}
	for i, r := range results {
		want := store.Inserted{Created: true, ExecutionTime: messages[i].ExecutionTime, Status: postdate.Pending}
		if r != want {
			x.Fatalf("Insert of %s: got %+v, want %+v", messages[i].ScheduleID, r, want)
		}
		x.first[messages[i].Key] = x.get(messages[i].Key).Version
	}
}

// add makes and inserts one message.
func (x *trial) add(at postdate.Time, edits ...edit) postdate.Message {
	x.Helper()
	m := x.message(at, edits...)
	x.insert(m)
	return m
}

// get reads a message that must be there.
func (x *trial) get(key postdate.Key) postdate.Record {
	x.Helper()
	r, err := x.store.Get(x.ctx, key)
	if err != nil {
		x.Fatalf("Get of %s: %v", key.ScheduleID, err)
	}
	return r
}

// own acquires a bucket and returns the token.
func (x *trial) own(b int) uint64 {
	x.Helper()
	seen := x.partition(b).Token
	got, err := x.store.Acquire(x.ctx,
		[]store.Acquisition{{Bucket: b, SeenToken: seen, Owner: "node-a", Lease: "lease-a"}})
	if err != nil || len(got) != 1 || !got[0].OK {
		x.Fatalf("Acquire of bucket %d at token %d: got %+v, %v", b, seen, got, err)
	}
	return got[0].Partition.Token
}

func (x *trial) partition(b int) bucket.Partition {
	x.Helper()
	found, _, err := x.store.Look(x.ctx, []int{b})
	if err != nil || len(found) != 1 || found[0].Bucket != b {
		x.Fatalf("Look at bucket %d: got %+v, %v", b, found, err)
	}
	return found[0]
}

// everything is a claim up to and including a time, with a scan of all that it covers.
func everything(b int, token uint64, to postdate.Time) store.Claim {
	return store.Claim{
		Bucket: b, Claim: bucket.Claim{Token: token, To: bucket.UpTo(to)},
		Scan: store.Scan{Limit: plenty, BytesMax: roomy},
	}
}

// place is where a newly inserted message waits.
func place(m postdate.Message) bucket.Position { return bucket.PositionOf(m.Key, m.ExecutionTime) }

// claim claims one bucket and expects to hold it. A claim without a number gets the next one.
// Whatever the store returns must be covered: by the claim and by the record.
func (x *trial) claim(c store.Claim) store.ClaimResult {
	x.Helper()
	if c.Number == 0 {
		c.Number = x.claims + 1
	}
	x.claims = max(x.claims, c.Number)
	results := x.store.Claim(x.ctx, []store.Claim{c})
	if len(results) != 1 || results[0].Err != nil {
		x.Fatalf("Claim of bucket %d with token %d and number %d: got %+v", c.Bucket, c.Token, c.Number, results)
	}
	x.wantCovered(&c, results[0])
	record := x.partition(c.Bucket)
	for _, r := range results[0].Due {
		if at := positionOf(&r); record.ClaimedFor(r.Route()).Before(at) {
			x.broken("a scan returned a message of %s at %v, and the record is %+v", r.Channel, at, record)
		}
	}
	return results[0]
}

// wantCovered expects that a scan ended where it may, and returned only what the claim covers.
func (x *trial) wantCovered(c *store.Claim, r store.ClaimResult) {
	x.Helper()
	if c.To.Before(r.To) || r.To.Before(r.Ended) || r.Complete && r.Ended != c.To {
		x.broken("a claim up to %v was written up to %v, and its scan ended at %v, Complete %t",
			c.To, r.To, r.Ended, r.Complete)
	}
	if len(r.Due) > c.Scan.Limit {
		x.broken("a scan returned %d messages, its limit is %d", len(r.Due), c.Scan.Limit)
	}
	for i := range r.Due {
		at := positionOf(&r.Due[i])
		if !c.Scan.After.Before(at) || r.Ended.Before(at) || !c.Covers(r.Due[i].Route(), at) {
			x.broken("a scan after %v that ended at %v returned a message of %s at %v, and the claim was %+v",
				c.Scan.After, r.Ended, r.Due[i].Channel, at, c.Claim)
		}
	}
}

// pages claims again and again, each time from where the last scan ended, until one is
// complete.
func (x *trial) pages(c store.Claim, page func(store.ClaimResult)) {
	x.Helper()
	for range pageMax {
		r := x.claim(c)
		if page != nil {
			page(r)
		}
		if r.Complete {
			return
		}
		if !c.Scan.After.Before(r.Ended) {
			x.Fatalf("a scan after %v made no progress: it ended at %v", c.Scan.After, r.Ended)
		}
		c.Scan.After = r.Ended
	}
	x.Fatalf("a scan was not complete after %d pages", pageMax)
}

// due is what a claim finds, over all pages.
func (x *trial) due(c store.Claim) []postdate.Record {
	x.Helper()
	var found []postdate.Record
	x.pages(c, func(r store.ClaimResult) { found = append(found, r.Due...) })
	return found
}

// wantDue expects that a claim finds exactly these messages, in this order.
func (x *trial) wantDue(c store.Claim, want ...postdate.Message) {
	x.Helper()
	x.wantIDs("a scan", idsOf(x.due(c)), want...)
}

func (x *trial) wantIDs(what string, got []string, want ...postdate.Message) {
	x.Helper()
	ids := []string{}
	for _, m := range want {
		ids = append(ids, m.Tenant+"/"+m.ScheduleID)
	}
	if !slices.Equal(got, ids) {
		x.broken("%s found %v, want %v", what, got, ids)
	}
}

func idsOf(records []postdate.Record) []string {
	ids := []string{}
	for _, r := range records {
		ids = append(ids, r.Tenant+"/"+r.ScheduleID)
	}
	return ids
}

// settlement is a settlement of m's first version.
func (x *trial) settlement(m postdate.Message, token uint64, how store.Settling) store.Settlement {
	s := store.Settlement{
		Key: m.Key, ExecutionTime: m.ExecutionTime, Version: x.first[m.Key], Token: token, How: how, At: t0 + 9000,
		Attempts: 1,
	}
	switch how {
	case store.SettleRetry, store.SettleFailed:
		s.Reason = "NO_ROUTE"
	case store.SettlePark:
		s.AttemptTime = parkedUntil(m)
	}
	return s
}

// parkedUntil is when a parked message is due, unless a check says otherwise.
func parkedUntil(m postdate.Message) postdate.Time { return m.ExecutionTime + 100_000 }

// retryAt is a settlement that moves m's next attempt to a time.
func (x *trial) retryAt(m postdate.Message, token uint64, at postdate.Time) store.Settlement {
	s := x.settlement(m, token, store.SettleRetry)
	s.AttemptTime = at
	return s
}

func (x *trial) settle(settlements ...store.Settlement) {
	x.Helper()
	if err := x.store.Settle(x.ctx, settlements); err != nil {
		x.Fatalf("Settle: %v", err)
	}
}

// cancel cancels one message and returns what the store said.
func (x *trial) cancel(m postdate.Message, at postdate.Time) store.Cancelled {
	x.Helper()
	results := x.store.Cancel(x.ctx, []postdate.Key{m.Key}, at)
	if len(results) != 1 {
		x.Fatalf("Cancel of one message answered %d results", len(results))
	}
	return results[0]
}

// wantCancelled expects that m can be cancelled, and cancels it.
func (x *trial) wantCancelled(m postdate.Message) {
	x.Helper()
	if got := x.cancel(m, t0+7); got.Err != nil || got.State.Status != postdate.Cancelled {
		x.Errorf("Cancel of %s: got %+v, want it CANCELLED", m.ScheduleID, got)
	}
	x.wantStatus(m, postdate.Cancelled)
}

// wantTooLate expects that m can neither be cancelled nor replaced, and that
// trying leaves it as it is.
func (x *trial) wantTooLate(m postdate.Message) {
	x.Helper()
	before := x.get(m.Key)
	got := x.cancel(m, t0+7)
	x.wantKind(got.Err, postdate.KindTooLate)
	if got.State != before.State {
		x.Errorf("Cancel that is too late: got the state %+v, want the present one %+v", got.State, before.State)
	}
	_, err := Replace(x.ctx, x.store, changed(m), before.Version)
	x.wantKind(err, postdate.KindTooLate)
	x.wantRecord(x.get(m.Key), before)
}

func (x *trial) wantStatus(m postdate.Message, want postdate.Status) {
	x.Helper()
	if got := x.get(m.Key); got.Status != want {
		x.Errorf("%s is %s, want %s", m.ScheduleID, got.Status, want)
	}
}

func (x *trial) wantKind(err error, want postdate.Kind) {
	x.Helper()
	if err == nil || postdate.KindOf(err) != want {
		x.Errorf("got the error %v (%s), want one of kind %q", err, postdate.KindOf(err), want)
	}
}

// wantRecord compares whole records, and names the fields that differ. Payloads, headers and
// histories may be nil or empty alike. Version 0 stands for the version at which the message was created.
func (x *trial) wantRecord(got, want postdate.Record) {
	x.Helper()
	got, want = normal(got), normal(want)
	if want.Version == 0 {
		want.Version = x.first[want.Key]
		if want.Version == 0 { // it was not noted when it was inserted
			want.Version = max(got.Version, 1)
		}
	}
	x.wantFields(want.ScheduleID, reflect.ValueOf(got.Message), reflect.ValueOf(want.Message))
	x.wantFields(want.ScheduleID, reflect.ValueOf(got.State), reflect.ValueOf(want.State))
	x.wantFields(want.ScheduleID, reflect.ValueOf(got.Series), reflect.ValueOf(want.Series))
	if !slices.Equal(got.Log, want.Log) {
		x.broken("%s has the log %v, want %v", want.ScheduleID, got.Log, want.Log)
	}
}

func (x *trial) wantFields(id string, got, want reflect.Value) {
	x.Helper()
	for i := range want.NumField() {
		g, w := got.Field(i).Interface(), want.Field(i).Interface()
		if !reflect.DeepEqual(g, w) {
			x.broken("%s has the %s %.200q, want %.200q", id, want.Type().Field(i).Name, fmt.Sprint(g), fmt.Sprint(w))
		}
	}
}

func normal(r postdate.Record) postdate.Record {
	if len(r.Payload) == 0 {
		r.Payload = nil
	}
	if len(r.Headers) == 0 {
		r.Headers = nil
	}
	if len(r.Series.History) == 0 {
		r.Series.History = nil
	}
	return r
}

// fresh is the record of a newly inserted message. Its version, which the store draws, is left
// open.
func fresh(m postdate.Message) postdate.Record {
	return postdate.Record{Message: m, State: postdate.NewState(&m, 0)}
}
