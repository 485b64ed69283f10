package storetest

import (
	"sync"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// Two requests of a client.
var requestA, requestB = postdate.Digest{1, 0, 'a'}, postdate.Digest{1, 0, 'b'}

func requests() []check {
	return []check{
		{"a key stands for the request that it came with first", func(x *trial) {
			key := x.requestKey(home)
			x.wantRequest(key, requestA, t0, requestA)
			x.wantRequest(key, requestA, t0+5, requestA)
			x.wantRequest(key, requestB, t0, requestA)
			x.wantRequest(key, requestB, t0, requestA)
		}},
		{"a key is a tenant's, and no message's id", func(x *trial) {
			m := x.add(t0)
			x.wantRequest(m.Key, requestA, t0, requestA)
			other := bucket.KeyOf("tenant-b", m.ScheduleID, x.store.Buckets())
			x.wantRequest(other, requestB, t0, requestB)
			x.wantRecord(x.get(m.Key), fresh(m))
			_, err := x.store.Get(x.ctx, other)
			x.wantKind(err, postdate.KindNotFound)
		}},
		{"what was noted before the time is forgotten, and nothing else", expireRequests},
		{"a call forgets up to its limit of them, and says how many", func(x *trial) {
			for range 5 {
				x.wantRequest(x.requestKey(home), requestA, t0, requestA)
			}
			x.expire(t0+1, t0, 3, 3)
			x.expire(t0+1, t0, 3, 2)
			x.expire(t0+1, t0, 3, 0)
		}},
		{"of many that note a key at once one succeeds, and all learn which", requestsAtOnce},
	}
}

// requestKey is a new key of a client, in a bucket.
func (x *trial) requestKey(b int) postdate.Key { return x.messageIn(b, tenant, t0).Key }

// wantRequest notes a request, and expects the key to stand for want.
func (x *trial) wantRequest(key postdate.Key, request postdate.Digest, now postdate.Time, want postdate.Digest) {
	x.Helper()
	got, err := x.store.NoteRequest(x.ctx, key, request, now)
	if err != nil || got != want {
		x.Errorf("the key %s, noted for %x, stands for %x, %v; want %x", key.ScheduleID, request, got, err, want)
	}
}

func expireRequests(x *trial) {
	old, young, elsewhere := x.requestKey(home), x.requestKey(home), x.requestKey(abroad)
	for key, at := range map[postdate.Key]postdate.Time{old: t0, young: t0 + 1, elsewhere: t0} {
		x.wantRequest(key, requestA, at, requestA)
	}
	here := store.Expiry{Buckets: []int{home}, SettledBefore: t0 + 1, Limit: plenty}
	x.expireIn(here, 1)
	x.wantRequest(young, requestB, t0+2, requestA)
	x.wantRequest(elsewhere, requestB, t0+2, requestA)
	x.wantRequest(old, requestB, t0+2, requestB)
	x.expireIn(here, 0)
	x.wantRequest(old, requestA, t0+3, requestB)
	x.expire(t0+3, t0, plenty, 3)
	for _, key := range []postdate.Key{old, young, elsewhere} {
		x.wantRequest(key, requestB, t0+9, requestB)
	}
}

func requestsAtOnce(x *trial) {
	const callers = 8
	key := x.requestKey(home)
	var learned [callers]postdate.Digest
	var calls sync.WaitGroup
	for i := range callers {
		calls.Go(func() {
			var err error
			if learned[i], err = x.store.NoteRequest(x.ctx, key, postdate.Digest{byte(i), 1}, t0); err != nil {
				x.Errorf("NoteRequest: %v", err)
			}
		})
	}
	calls.Wait()
	for _, d := range learned[1:] {
		if d != learned[0] || d[1] != 1 {
			x.Errorf("the callers learned %x", learned)
			return
		}
	}
}

// requestsSurvive is a durable check.
func requestsSurvive(x *trial) {
	kept, gone := x.requestKey(home), x.requestKey(home)
	x.wantRequest(gone, requestA, t0, requestA)
	x.wantRequest(kept, requestA, t0+1, requestA)
	x.expire(t0+1, t0, plenty, 1)
	x.crash()
	x.wantRequest(kept, requestB, t0+2, requestA)
}
