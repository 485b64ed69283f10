// Package bucket maps schedule ids to buckets, and holds the pure transitions of a bucket's
// partition record: who owns it, and up to where it is claimed and settled.
//
// It promises that the same tenant, schedule id and N give the same bucket on every machine and
// for ever, and that every store that applies these transitions atomically keeps the fence: a
// token that was passed on can never claim again. It does no I/O.
package bucket

import (
	"github.com/spaolacci/murmur3"

	"github.com/postdate/postdate"
)

// Of is the bucket of a schedule id among n buckets: the first half of the 128-bit MurmurHash3
// (Austin Appleby, x64 variant, seed 0) of tenant, a zero byte, and the id, modulo n. The
// 32-bit variant is not used: the library's one-shot form of it keeps a pointer as a plain
// number across its loop, which is wrong if the bytes lie on a goroutine's stack.
//
// The occurrences of a series are in its bucket, and what failed messages left is in theirs.
func Of(tenant, scheduleID string, n int) int {
	b := make([]byte, 0, len(tenant)+1+len(scheduleID))
	b = append(b, tenant...)
	b = append(b, 0)
	b = append(b, postdate.Key{ScheduleID: scheduleID}.ClientID()...)
	return int(murmur3.Sum64(b) % uint64(n))
}

// KeyOf is the full key of a message among n buckets.
func KeyOf(tenant, scheduleID string, n int) postdate.Key {
	return postdate.Key{Bucket: Of(tenant, scheduleID, n), Tenant: tenant, ScheduleID: scheduleID}
}
