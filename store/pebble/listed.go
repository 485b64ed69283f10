package pebble

import (
	"encoding/binary"
	"slices"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Few of all messages have a label, recur, or have failed. Each of these has an entry in a space of its own, in the
// order of List, so that a list of them passes over no others. A list of what is PENDING goes by the due space, where
// most have their execution time. The others have entries, too (deferred).

func labelPrefix(k []byte, tenant, label string) []byte {
	return append(appendName(append(k, spaceLabel), tenant, label), 0)
}

// entryPrefix is how a tenant's entries begin in the space of what recurs, failed or is deferred.
func entryPrefix(k []byte, space byte, tenant string) []byte {
	return appendName(append(k, space), tenant, "")
}

// listedBy is how the entries begin that a list goes by (nil: it goes by none), and the space whose buckets it goes by
// (0: it goes by entries alone).
func listedBy(q *store.ListQuery) (prefix []byte, space byte) {
	switch {
	case q.Label != "":
		return labelPrefix(nil, q.Tenant, q.Label), 0
	case q.Recurring == store.OnlyRecurring:
		return entryPrefix(nil, spaceSeries, q.Tenant), 0
	case q.Status == postdate.DeliveryFailed:
		return entryPrefix(nil, spaceFailed, q.Tenant), 0
	case q.Status == postdate.Pending:
		return entryPrefix(nil, spaceDeferred, q.Tenant), spaceDue
	}
	return nil, spaceMessage
}

// appendListed makes a prefix the entry of a message.
func appendListed(prefix []byte, key postdate.Key, execution postdate.Time) []byte {
	return append(appendBucket(appendTime(prefix, execution), key.Bucket), key.ScheduleID...)
}

func labelKey(k []byte, label string, key postdate.Key, execution postdate.Time) []byte {
	return appendListed(labelPrefix(k, key.Tenant, label), key, execution)
}

func entryKey(k []byte, space byte, key postdate.Key, execution postdate.Time) []byte {
	return appendListed(entryPrefix(k, space, key.Tenant), key, execution)
}

// listedBounds bounds an iterator to the entries, which begin with prefix, that can belong to a page.
func listedBounds(prefix []byte, q *store.ListQuery) *lsm.IterOptions {
	o := &lsm.IterOptions{LowerBound: appendTime(slices.Clone(prefix), q.From), UpperBound: after(prefix)}
	if q.To != 0 {
		o.UpperBound = appendTime(slices.Clone(prefix), q.To)
	}
	if at := q.After; at != nil && at.ExecutionTime >= q.From {
		key := postdate.Key{Bucket: at.Bucket, Tenant: q.Tenant, ScheduleID: at.ScheduleID}
		o.LowerBound = append(appendListed(slices.Clone(prefix), key, at.ExecutionTime), 0) // the next possible key
	}
	return o
}

// listed adds the message at whose entry the iterator stands, if it stands at one.
func (l *lister) listed(ok bool) error {
	if !ok {
		return l.entries.Error()
	}
	k := l.entries.Key()[len(l.prefix):]
	if len(k) < timeBytes+bucketBytes {
		return errLayout
	}
	l.heads = append(l.heads, listHead{
		key: postdate.Key{Tenant: l.q.Tenant, Bucket: int(binary.BigEndian.Uint16(k[timeBytes:])),
			ScheduleID: string(k[timeBytes+bucketBytes:])},
		execution: postdate.Time(binary.BigEndian.Uint64(k)),
		entry:     true,
	})
	return nil
}
