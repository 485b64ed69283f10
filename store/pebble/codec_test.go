package pebble

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// FuzzStoredValues: whatever bytes a value holds, reading it neither panics nor takes more
// memory than its length; and what can be read is what would be written again.
func FuzzStoredValues(f *testing.F) {
	key := postdate.Key{Bucket: 3, Tenant: "t", ScheduleID: "id"}
	m := postdate.Message{
		Key: key, ExecutionTime: 7, Channel: "inbox:a", ContentType: "text/plain", Traceparent: "x", Tracestate: "a=1", MayRepeat: true, Priority: postdate.PriorityLow,
		Headers: []postdate.Header{{Name: "a", Value: "b"}}, Payload: []byte("hello"),
	}
	s := stateOf(&m, postdate.NewState(&m, 1))
	addForms(f, &m, &s)
	s.Parked, s.DownSince, m.Retry.MaxParked = true, 4, time.Hour
	addForms(f, &m, &s)
	m.Labels, m.FailureChannel, s.Labels = []string{"a", "b"}, "inbox:b", []string{"a", "b"}
	s.Log = []postdate.Attempt{{At: 5, Node: "n", Outcome: postdate.AttemptRefused, Reason: "no"}}
	addForms(f, &m, &s)
	series, st := fullSeries()
	addForms(f, &series, &st)
	f.Add(appendInboxMessage(nil, &store.InboxMessage{Headers: m.Headers, Payload: m.Payload}))
	f.Add(appendPartition(nil, bucket.Partition{Token: 9, Owner: "n", Lease: "n/1", Claimed: bucket.PositionOf(key, 5)}))
	f.Add(appendPartition(nil, bucket.Partition{Token: 9, Claimed: bucket.UpTo(5), Behind: map[postdate.Route]bucket.Position{"inbox:a": bucket.PositionOf(key, 4), "inbox:b": {}}}))
	f.Add(oldPartition)
	f.Add(appendLease(nil, bucket.Lease{Renewals: 1 << 40, Lasts: 30 * time.Second}))
	f.Add(binary.AppendUvarint(nil, 1<<40)) // a lease of an earlier version
	f.Add(appendChannel(nil, store.ChannelSettings{Paused: true, MaxPerSecond: 2.5, MaxInFlight: 3, FailureChannel: "inbox:b"}))
	f.Add(appendAPIKey(nil, &store.APIKey{Tenant: "t", Scopes: []string{"admin"}, Channels: []string{"inbox:a*"}, ExpiresAt: 7}))
	f.Add(appendTenant(nil, &store.TenantSettings{RequestsPerSecond: new(float64), BytesMax: new(int64), Weight: new(int)}))
	f.Add(appendBirth(nil, 64, 1))
	f.Add([]byte{layout, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, v []byte) {
		if s, err := readState(v); err == nil {
			again, err := readState(appendState(nil, &s, v[0]))
			same(t, s, again, err)
			route, err := routeOf(v, "t")
			same(t, s.route("t"), route, err)
		}
		if m, err := readMessage(v, key, 7); err == nil {
			again, err := readMessage(appendMessage(nil, &m), key, 7)
			same(t, m, again, err)
		}
		if m, err := readInboxMessage(v, "t", "a"); err == nil {
			again, err := readInboxMessage(appendInboxMessage(nil, &m), "t", "a")
			same(t, m, again, err)
		}
		if p, err := readPartition(v, 3); err == nil {
			again, err := readPartition(appendPartition(nil, p), 3)
			same(t, p, again, err)
		}
		l := readLease(v, "n/1")
		same(t, l, readLease(appendLease(nil, l), "n/1"), nil)
		if c, err := readChannel(v, "inbox:a"); err == nil && c.MaxPerSecond == c.MaxPerSecond { // not a number is not itself
			again, err := readChannel(appendChannel(nil, c), "inbox:a")
			same(t, c, again, err)
		}
		if s, err := readTenant(v, "t"); err == nil {
			written := appendTenant(nil, &s) // compared as bytes: not a number is not itself
			again, err := readTenant(written, "t")
			same(t, written, appendTenant(nil, &again), err)
		}
		if k, err := readAPIKey(v, "a"); err == nil {
			again, err := readAPIKey(appendAPIKey(nil, &k), "a")
			same(t, k, again, err)
		}
		if buckets, birth, written, err := readBirth(v); err == nil {
			again := appendBirth(nil, buckets, birth)
			if written < layoutNow { // but for the layout and the checksum it is the same
				v, again = v[1:9], again[1:9]
			}
			same(t, v, again, nil)
		}
		readsSmall(t, v)
	})
}

// readsSmall reads a value as a request, and as the end of a key.
func readsSmall(t *testing.T, v []byte) {
	if d, err := readRequest(v); err == nil {
		same(t, v, appendRequest(nil, d), nil)
	}
	if c, err := readConsumer(v); err == nil {
		again, err := readConsumer(appendConsumer(nil, &c))
		same(t, c, again, err)
	}
	if j, err := readJob(v, postdate.Key{}); err == nil {
		again, err := readJob(appendJob(nil, &j), postdate.Key{})
		same(t, j, again, err)
	}
	splitTimed(v)
	splitEnded(v)
}

// addForms adds a message, its state in each layout, and a job that has come to it.
func addForms(f *testing.F, m *postdate.Message, s *state) {
	f.Add(appendJob(nil, &store.Job{Kind: store.JobCancel, Version: s.Version, After: &store.ListPosition{ExecutionTime: m.ExecutionTime}}))
	f.Add(appendMessage(nil, m))
	moved := *m
	moved.Moved = postdate.Move{At: 5, From: 6}
	f.Add(appendMessage(nil, &moved))
	for _, form := range []byte{layout, layoutLean, layoutSized} {
		f.Add(appendState(nil, s, form))
	}
}

// A lease that an earlier version wrote does not say how long it lasts.
func TestLeaseOfAnEarlierVersion(t *testing.T) {
	same(t, readLease(binary.AppendUvarint(nil, 300), "n/1"), bucket.Lease{ID: "n/1", Renewals: 300}, nil)
}

// What does not wait for a channel that is down is written as earlier versions wrote it, so
// what they wrote can be read.
func TestStatesAndMessagesOfAnEarlierVersion(t *testing.T) {
	m := postdate.Message{Key: postdate.Key{Bucket: 3, Tenant: "t", ScheduleID: "id"}, ExecutionTime: 7, Channel: "a:b", Payload: []byte("hello")}
	s := stateOf(&m, postdate.State{Status: postdate.Pending, Version: 1, AttemptTime: 7, Parked: true, LastError: "down"})
	s.PayloadBytes = unsized
	state, message := appendState(nil, &s, layout), appendMessage(nil, &m)
	if !bytes.HasSuffix(state, []byte("down")) || !bytes.HasSuffix(message, m.Payload) {
		t.Errorf("more follows than an earlier version writes: %q, %q", state, message)
	}
	read, err := readState(state)
	same(t, s, read, err)
	s.Digest = postdate.DigestOf(&m, "")
	for _, form := range []byte{layout, layoutLean} {
		written, want := appendState(nil, &s, form), s
		if form == layoutLean {
			want.Digest = postdate.Digest{}
		}
		read, err := readState(written)
		same(t, want, read, err)
		route, err := routeOf(written, "t")
		same(t, "@t a:b", string(route), err)
	}
	again, err := readMessage(message, m.Key, 7)
	same(t, m, again, err)
}

// A message that an earlier version parked is in the parked space alone. It can be unparked,
// cancelled and settled, and is then at most once in each space.
func TestParkedByAnEarlierVersion(t *testing.T) {
	s, err := Open(openConfig(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.Acquire(t.Context(), []store.Acquisition{{Bucket: openMessage(0).Bucket, Owner: "n", Lease: "n/1"}})
	if err != nil {
		t.Fatal(err)
	}
	token, found := got[0].Partition.Token, []postdate.Message{}
	for i := 0; len(found) < 3; i++ {
		m := openMessage(i)
		if m.Bucket != openMessage(0).Bucket {
			continue
		}
		m.Digest = postdate.DigestOf(&m, "")
		found = append(found, m)
		s.Insert(t.Context(), []postdate.Message{m})
		rec, _ := s.Get(t.Context(), m.Key)
		err := s.Settle(t.Context(), []store.Settlement{{Key: m.Key, Version: rec.Version, Token: token, How: store.SettlePark, AttemptTime: m.ExecutionTime}})
		if err == nil {
			err = s.db.Delete(timedKey(nil, spaceDue, m.Bucket, bucket.PositionOf(m.Key, m.ExecutionTime)), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	at := found[2].ExecutionTime + 100
	if r := s.Cancel(t.Context(), []postdate.Key{found[0].Key}, at)[0]; r.Err != nil {
		t.Errorf("it cannot be cancelled: %v", r.Err)
	}
	for _, i := range []int{1, 2} {
		n, _, err := s.Unpark(t.Context(), store.Unpark{Bucket: found[0].Bucket, Token: token, Route: "inbox:a", At: at, Limit: 1})
		if err != nil || n != 1 {
			t.Errorf("unparking message %d moved %d: %v", i, n, err)
		}
	}
	result := s.Claim(t.Context(), []store.Claim{{Bucket: found[0].Bucket, Claim: bucket.Claim{Token: token, Number: 1, To: bucket.UpTo(at)}, Scan: store.Scan{Limit: 9, BytesMax: 1 << 20}}})[0]
	if result.Err != nil || len(result.Due) != 2 || result.Due[0].Parked || result.Next != postdate.Far {
		t.Errorf("then a claim finds %+v", result)
	}
	if left, _ := s.Parked(t.Context(), []int{found[0].Bucket}); len(left) != 0 {
		t.Errorf("%v is still parked", left)
	}
	other := found[1]
	other.Digest[0]++
	for _, again := range []struct {
		m    postdate.Message
		kind postdate.Kind // 0: it is the same
	}{{found[1], 0}, {other, postdate.KindExists}} {
		r := s.Insert(t.Context(), []postdate.Message{again.m})[0]
		if r.Created || (r.Err == nil) != (again.kind == 0) || r.Err != nil && postdate.KindOf(r.Err) != again.kind {
			t.Errorf("after it was unparked its id is given again: %+v", r)
		}
	}
}

func same(t *testing.T, read, again any, err error) {
	t.Helper()
	if err != nil || !reflect.DeepEqual(read, again) {
		t.Fatalf("read %+v, written and read again %+v, %v", read, again, err)
	}
}

// oldPartition is a record as it was written before claims ended at positions. The last byte
// came with the numbers of claims.
var oldPartition = []byte{1, 9, 4, 5, 1, 'n', 3, 'n', '/', '1', 7}

// A partition record of an earlier version can be read: the whole millisecond up to which it
// was claimed is still claimed.
func TestPartitionOfAnEarlierVersion(t *testing.T) {
	want := bucket.Partition{Bucket: 3, Token: 9, Owner: "n", Lease: "n/1", Claims: 7, Checkpoint: 4, Claimed: bucket.UpTo(5)}
	got, err := readPartition(oldPartition, 3)
	same(t, got, want, err)
	want.Claims = 0
	got, err = readPartition(oldPartition[:len(oldPartition)-1], 3)
	same(t, got, want, err)
}

// routeOf is the route of a tenant's message, of whose state only that is read.
func routeOf(v []byte, tenant string) (postdate.Route, error) {
	channel, priority, err := targetOf(v)
	return postdate.RouteAt(tenant, postdate.Channel(channel), priority), err
}

// A tracestate comes back, and a message without one is written as earlier versions wrote it.
func TestTracestate(t *testing.T) {
	m := postdate.Message{Key: postdate.Key{Bucket: 3, Tenant: "t", ScheduleID: "id"}, ExecutionTime: 7, Channel: "a:b", Traceparent: "00-1", Payload: []byte("hello")}
	without := appendMessage(nil, &m)
	m.Tracestate = "a=1"
	with := appendMessage(nil, &m)
	if without[1]&formState != 0 || with[1] != without[1]|formState || len(with) != len(without)+1+len(m.Tracestate) {
		t.Errorf("%q, and with a tracestate %q", without, with)
	}
	again, err := readMessage(with, m.Key, 7)
	same(t, m, again, err)
}

// A move comes back, and a message that was never moved is written as earlier versions wrote it. They cannot read the
// other: they know of no layout but the first.
func TestMoved(t *testing.T) {
	m := postdate.Message{Key: postdate.Key{Bucket: 3, Tenant: "t", ScheduleID: "id"}, ExecutionTime: 7, Channel: "a:b", Payload: []byte("hello")}
	never := appendMessage(nil, &m)
	m.Moved = postdate.Move{At: 5, From: 6}
	moved := appendMessage(nil, &m)
	want := append([]byte{layoutMoved, never[1], 5, 6}, never[2:]...)
	if never[0] != layout || !bytes.Equal(moved, want) {
		t.Errorf("%q, and moved %q, want %q", never, moved, want)
	}
	again, err := readMessage(moved, m.Key, 7)
	same(t, m, again, err)
	moved[0] = layoutMoved + 1
	if m, err := readMessage(moved, m.Key, 7); err == nil {
		t.Errorf("an unknown layout is read as %+v", m)
	}
}
