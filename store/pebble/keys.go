package pebble

import (
	"encoding/binary"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// The key spaces. Numbers in keys are big-endian, so that bytes and numbers have the same
// order. A zero byte ends a name, and no name contains one.
//
//	m bucket executionTime tenant 0 id   the message, written once
//	s bucket tenant 0 id                 its state, and the history of a series
//	d bucket attemptTime tenant 0 id     its state again, while it is PENDING
//	k bucket route 0 attemptTime tenant 0 id     and once more, while it is parked
//	f settledAt bucket tenant 0 id       its execution time (for earlier versions), once it is final
//	g tenant 0 label 0 executionTime bucket id   nothing: the messages with a label, in the order of List
//	y tenant 0 executionTime bucket id   nothing: likewise those that recur
//	z tenant 0 executionTime bucket id   nothing: likewise those that are DELIVERY_FAILED
//	D tenant 0 executionTime bucket id   nothing: likewise those that are PENDING and wait at another time
//	p bucket                             the partition record
//	l lease                              how often a lease was renewed, and how long it lasts
//	b tenant 0 inbox 0 sequence          a message in an inbox
//	o deliveredAt tenant 0 inbox         an inbox with messages, at the time of the oldest one
//	n                                    the floor: no empty inbox gave a higher sequence number
//	c tenant 0 inbox 0                   what earlier versions kept in place of n
//	h route                              what an operator set for a route
//	a id                                 an API key
//	t tenant                             what an operator set for a tenant
//	r bucket tenant 0 key                the request that an idempotency key stands for
//	q notedAt bucket tenant 0 key        nothing: the order in which requests expire
//	v bucket tenant 0 inbox 0 consumer   how far a consumer of an inbox has come
//	w usedAt bucket tenant 0 inbox 0 consumer    nothing: the order in which consumers expire
//	j bucket tenant 0 id                 a job
//	i tenant 0 id                        the bucket of a job that has not ended
//	e endedAt bucket tenant 0 id         nothing: the order in which jobs expire
//	u tenant 0 slot                      what of a tenant's channels in the slot is PENDING
//	x                                    the store's birth record
const (
	spaceMessage    = 'm'
	spaceState      = 's'
	spaceDue        = 'd'
	spaceParked     = 'k'
	spaceFinished   = 'f'
	spaceLabel      = 'g'
	spaceSeries     = 'y'
	spaceFailed     = 'z'
	spaceDeferred   = 'D'
	spacePartition  = 'p'
	spaceLease      = 'l'
	spaceInbox      = 'b'
	spaceInboxOrder = 'o'
	spaceInboxFloor = 'n'
	spaceInboxTail  = 'c'
	spaceChannel    = 'h'
	spaceAPIKey     = 'a'
	spaceTenant     = 't'
	spaceRequest    = 'r'
	spaceNoted      = 'q'
	spaceConsumer   = 'v'
	spaceUsed       = 'w'
	spaceJob        = 'j'
	spaceOpenJob    = 'i'
	spaceEndedJob   = 'e'
	spaceUsage      = 'u'
	spaceBirth      = 'x'
)

const (
	bucketBytes = 2
	timeBytes   = 8
)

func appendBucket(k []byte, bucket int) []byte {
	return binary.BigEndian.AppendUint16(k, uint16(bucket))
}

// appendTime keeps the order of times: they are never negative.
func appendTime(k []byte, t postdate.Time) []byte {
	return binary.BigEndian.AppendUint64(k, uint64(t))
}

func appendName(k []byte, tenant, id string) []byte {
	k = append(k, tenant...)
	k = append(k, 0)
	return append(k, id...)
}

// timedKey is the place of p in a bucket of a space that is in the order of times there.
func timedKey(k []byte, space byte, bucket int, p bucket.Position) []byte {
	k = appendBucket(append(k, space), bucket)
	return appendName(appendTime(k, p.Time), p.Tenant, p.ScheduleID)
}

func messageKey(k []byte, key postdate.Key, execution postdate.Time) []byte {
	return timedKey(k, spaceMessage, key.Bucket, bucket.PositionOf(key, execution))
}

func stateKey(k []byte, key postdate.Key) []byte {
	return appendName(appendBucket(append(k, spaceState), key.Bucket), key.Tenant, key.ScheduleID)
}

// occurrencesPrefix is how the state keys of a series' occurrences begin. Their ids are the series'
// id, a slash and more.
func occurrencesPrefix(k []byte, series postdate.Key) []byte { return append(stateKey(k, series), '/') }

func parkedPrefix(k []byte, bucket int, route postdate.Route) []byte {
	k = appendBucket(append(k, spaceParked), bucket)
	k = append(k, route...)
	return append(k, 0)
}

func parkedKey(k []byte, bucket int, route postdate.Route, p bucket.Position) []byte {
	k = parkedPrefix(k, bucket, route)
	return appendName(appendTime(k, p.Time), p.Tenant, p.ScheduleID)
}

func finishedKey(k []byte, settledAt postdate.Time, key postdate.Key) []byte {
	return endedKey(k, spaceFinished, settledAt, key)
}

// endedKey is the place of something in the order in which it expires.
func endedKey(k []byte, space byte, at postdate.Time, key postdate.Key) []byte {
	return appendName(appendBucket(appendTime(append(k, space), at), key.Bucket), key.Tenant, key.ScheduleID)
}

func requestKey(k []byte, key postdate.Key) []byte {
	return appendName(appendBucket(append(k, spaceRequest), key.Bucket), key.Tenant, key.ScheduleID)
}

func consumerKey(k []byte, key postdate.Key) []byte {
	return appendName(appendBucket(append(k, spaceConsumer), key.Bucket), key.Tenant, key.ScheduleID)
}

func jobKey(k []byte, key postdate.Key) []byte {
	return appendName(appendBucket(append(k, spaceJob), key.Bucket), key.Tenant, key.ScheduleID)
}

func openJobKey(k []byte, tenant, id string) []byte {
	return appendName(append(k, spaceOpenJob), tenant, id)
}

func partitionKey(k []byte, bucket int) []byte {
	return appendBucket(append(k, spacePartition), bucket)
}

func leaseKey(k []byte, id string) []byte { return append(append(k, spaceLease), id...) }

// orderKey is the place of an inbox in the order of expiry.
func orderKey(k []byte, oldest postdate.Time, tenant, name string) []byte {
	return appendName(appendTime(append(k, spaceInboxOrder), oldest), tenant, name)
}

func inboxPrefix(k []byte, tenant, name string) []byte {
	return append(appendName(append(k, spaceInbox), tenant, name), 0)
}

// inboxKey with sequence 0 is before all of the inbox: sequences begin at 1.
func inboxKey(k []byte, tenant, name string, sequence uint64) []byte {
	return binary.BigEndian.AppendUint64(inboxPrefix(k, tenant, name), sequence)
}

// spaceOnly bounds an iterator to one space.
func spaceOnly(space byte) *lsm.IterOptions {
	return &lsm.IterOptions{LowerBound: []byte{space}, UpperBound: []byte{space + 1}}
}

// readAll reads what is stored in a space under names. It reads each value by the name in its key.
func readAll[T any](s *Store, space byte, read func(value []byte, name string) (T, error)) (all []T, err error) {
	iter, err := s.db.NewIter(spaceOnly(space))
	if err != nil {
		return nil, err
	}
	defer iter.Close()
	for ok := iter.First(); ok; ok = iter.Next() {
		one, err := read(iter.Value(), string(iter.Key()[1:]))
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, iter.Error()
}

// after is the first key after all keys that begin with k.
func after(k []byte) []byte {
	end := append([]byte(nil), k...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// splitTimed reads "time tenant 0 id", the end of a message's, a due or a parked key.
// The zero position is none.
func splitTimed(k []byte) bucket.Position {
	if len(k) < timeBytes {
		return bucket.Position{}
	}
	tenant, id, _ := splitName(k[timeBytes:])
	return bucket.Position{Time: postdate.Time(binary.BigEndian.Uint64(k)), Tenant: tenant, ScheduleID: id}
}

// splitName reads "tenant 0 id".
func splitName(k []byte) (tenant, id string, ok bool) {
	for i, c := range k {
		if c == 0 {
			return string(k[:i]), string(k[i+1:]), true
		}
	}
	return "", "", false
}

// splitEnded reads an endedKey.
func splitEnded(k []byte) (at postdate.Time, key postdate.Key, ok bool) {
	if len(k) < 1+timeBytes+bucketBytes {
		return 0, postdate.Key{}, false
	}
	at = postdate.Time(binary.BigEndian.Uint64(k[1:]))
	key.Bucket = int(binary.BigEndian.Uint16(k[1+timeBytes:]))
	key.Tenant, key.ScheduleID, ok = splitName(k[1+timeBytes+bucketBytes:])
	return at, key, ok
}
