package pebble

import (
	"encoding/binary"
	"reflect"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// FuzzStoredValues: whatever a value holds, reading it neither panics nor takes more
// memory than it is long; and what can be read is what would be written again.
func FuzzStoredValues(f *testing.F) {
	key := postdate.Key{Bucket: 3, Tenant: "t", ScheduleID: "id"}
	m := postdate.Message{
		Key: key, ExecutionTime: 7, Channel: "inbox:a", ContentType: "text/plain", Traceparent: "x", MayRepeat: true,
		Headers: []postdate.Header{{Name: "a", Value: "b"}}, Payload: []byte("hello"),
	}
	s := stateOf(&m, postdate.NewState(&m, 1))
	f.Add(appendState(nil, &s))
	f.Add(appendMessage(nil, &m))
	f.Add(appendInboxMessage(nil, &store.InboxMessage{Headers: m.Headers, Payload: m.Payload}))
	f.Add(appendPartition(nil, bucket.Partition{Token: 9, Owner: "n", Lease: "n/1", Claimed: bucket.PositionOf(key, 5)}))
	f.Add(appendPartition(nil, bucket.Partition{Token: 9, Claimed: bucket.UpTo(5), Behind: map[postdate.Channel]bucket.Position{"inbox:a": bucket.PositionOf(key, 4), "inbox:b": {}}}))
	f.Add(oldPartition)
	f.Add(appendLease(nil, bucket.Lease{Renewals: 1 << 40, Lasts: 30 * time.Second}))
	f.Add(binary.AppendUvarint(nil, 1<<40)) // a lease of an earlier version
	f.Add(appendChannel(nil, store.ChannelSettings{Paused: true, MaxPerSecond: 2.5, MaxInFlight: 3}))
	f.Add(appendBirth(nil, 64, 1))
	f.Add([]byte{layout, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, v []byte) {
		if s, err := readState(v); err == nil {
			again, err := readState(appendState(nil, &s))
			same(t, s, again, err)
			channel, err := channelOf(v)
			same(t, string(s.Channel), string(channel), err)
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
		if buckets, birth, err := readBirth(v); err == nil {
			same(t, v, appendBirth(nil, buckets, birth), nil)
		}
		splitTimed(v)
		splitFinished(v)
	})
}

// A lease that an earlier version wrote does not say how long it lasts.
func TestLeaseOfAnEarlierVersion(t *testing.T) {
	same(t, readLease(binary.AppendUvarint(nil, 300), "n/1"), bucket.Lease{ID: "n/1", Renewals: 300}, nil)
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

// A partition record of an earlier version can be read: the whole millisecond up to which
// was claimed is claimed still.
func TestPartitionOfAnEarlierVersion(t *testing.T) {
	want := bucket.Partition{Bucket: 3, Token: 9, Owner: "n", Lease: "n/1", Claims: 7, Checkpoint: 4, Claimed: bucket.UpTo(5)}
	got, err := readPartition(oldPartition, 3)
	same(t, got, want, err)
	want.Claims = 0
	got, err = readPartition(oldPartition[:len(oldPartition)-1], 3)
	same(t, got, want, err)
}
