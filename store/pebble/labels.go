package pebble

import (
	"encoding/binary"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

func labelPrefix(k []byte, tenant, label string) []byte {
	return append(appendName(append(k, spaceLabel), tenant, label), 0)
}

// labelKey is the place of a message among those with a label.
func labelKey(k []byte, label string, key postdate.Key, execution postdate.Time) []byte {
	k = appendTime(labelPrefix(k, key.Tenant, label), execution)
	return append(appendBucket(k, key.Bucket), key.ScheduleID...)
}

// labelBounds bounds an iterator to what can belong to a page of messages with a label.
func labelBounds(q *store.ListQuery) *lsm.IterOptions {
	prefix := labelPrefix(nil, q.Tenant, q.Label)
	from := appendTime(labelPrefix(nil, q.Tenant, q.Label), q.From)
	o := &lsm.IterOptions{LowerBound: from, UpperBound: after(prefix)}
	if q.To != 0 {
		o.UpperBound = appendTime(prefix, q.To)
	}
	if at := q.After; at != nil && at.ExecutionTime >= q.From {
		key := postdate.Key{Bucket: at.Bucket, Tenant: q.Tenant, ScheduleID: at.ScheduleID}
		o.LowerBound = append(labelKey(nil, q.Label, key, at.ExecutionTime), 0) // the next possible key
	}
	return o
}

// labelled adds the message at which the iterator stands, if it stands at one.
func (l *lister) labelled(ok bool) error {
	if !ok {
		return l.iter.Error()
	}
	k := l.iter.Key()[len(labelPrefix(nil, l.q.Tenant, l.q.Label)):]
	if len(k) < timeBytes+bucketBytes {
		return errLayout
	}
	l.heads = append(l.heads, listHead{
		key: postdate.Key{Tenant: l.q.Tenant, Bucket: int(binary.BigEndian.Uint16(k[timeBytes:])),
			ScheduleID: string(k[timeBytes+bucketBytes:])},
		execution: postdate.Time(binary.BigEndian.Uint64(k)),
	})
	return nil
}
