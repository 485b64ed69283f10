package storetest

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

func keys() []check {
	return []check{
		{"a new store has no API keys", func(x *trial) { x.wantKeys() }},
		{"API keys are listed as they were made", func(x *trial) {
			full, bare := apiKey("full"), store.APIKey{ID: "bare", Tenant: "b", Scopes: []string{"admin"}}
			x.createKey(full)
			x.createKey(full) // repeated
			x.createKey(bare)
			x.wantKeys(full, bare)
		}},
		{"the id of an API key is not taken twice", func(x *trial) {
			key := apiKey("a")
			x.createKey(key)
			other := key
			other.Tenant, other.SecretHash = "other", sha256.Sum256([]byte("other"))
			x.wantKind(x.store.CreateKey(x.ctx, other), postdate.KindExists)
			x.wantKeys(key)
		}},
		{"a revoked API key is gone, and the others stay", func(x *trial) {
			a, b := apiKey("a"), apiKey("b")
			x.createKey(a)
			x.createKey(b)
			x.revokeKey("a")
			x.wantKeys(b)
			x.wantKind(x.store.RevokeKey(x.ctx, "a"), postdate.KindNotFound)
			x.wantKind(x.store.RevokeKey(x.ctx, ""), postdate.KindNotFound)
			x.createKey(a)
			x.wantKeys(a, b)
		}},
		{"the use of an API key never goes back", useKeys},
		{"the version of the API keys tells changes, and only these", versionKeys},
		{"API keys that are made and revoked at the same time all count", keysAtOnce},
	}
}

func useKeys(x *trial) {
	a, b := apiKey("a"), apiKey("b")
	x.createKey(a)
	x.createKey(b)
	x.revokeKey("b")
	x.useKeys(store.KeyUse{ID: "a", At: t0 + 10}, store.KeyUse{ID: "b", At: t0}, store.KeyUse{ID: "none", At: t0})
	a.LastUsedAt = t0 + 10
	x.wantKeys(a)
	x.useKeys(store.KeyUse{ID: "a", At: t0 + 9})
	x.wantKeys(a)
	x.useKeys(store.KeyUse{ID: "a", At: t0 + 11}, store.KeyUse{ID: "a", At: t0})
	a.LastUsedAt = t0 + 11
	x.wantKeys(a)
	x.useKeys()
}

func versionKeys(x *trial) {
	before := x.keysVersion()
	changed := func(what string, want bool) {
		x.Helper()
		now := x.keysVersion()
		if (now != before) != want {
			x.Errorf("after %s the version is %d, before it was %d", what, now, before)
		}
		before = now
	}
	key := apiKey("a")
	x.createKey(key)
	changed("a key was made", true)
	x.createKey(key)
	x.useKeys(store.KeyUse{ID: "a", At: t0})
	x.wantKind(x.store.RevokeKey(x.ctx, "b"), postdate.KindNotFound)
	changed("nothing", false)
	x.revokeKey("a")
	changed("it was revoked", true)
	x.createKey(key)
	changed("it was made again", true)
}

func keysAtOnce(x *trial) {
	const each, callers = 5, 4
	before := x.keysVersion()
	var group sync.WaitGroup
	var mu sync.Mutex // guards the versions
	versions := map[uint64]bool{before: true}
	for c := range callers {
		group.Go(func() {
			for i := range each {
				id := fmt.Sprintf("key-%d-%d", c, i)
				if err := x.store.CreateKey(x.ctx, apiKey(id)); err != nil {
					x.Errorf("CreateKey of %s: %v", id, err)
				}
				if i%2 == 0 {
					if err := x.store.RevokeKey(x.ctx, id); err != nil {
						x.Errorf("RevokeKey of %s: %v", id, err)
					}
				}
				v, err := x.store.KeysVersion(x.ctx)
				if err != nil {
					x.Errorf("KeysVersion: %v", err)
				}
				mu.Lock()
				versions[v] = true
				mu.Unlock()
			}
		})
	}
	group.Wait()
	var want []store.APIKey
	for c := range callers {
		for i := 1; i < each; i += 2 {
			want = append(want, apiKey(fmt.Sprintf("key-%d-%d", c, i)))
		}
	}
	x.wantKeys(want...)
	if len(versions) < each {
		x.Errorf("%d changes one after the other left only %d versions", each, len(versions)-1)
	}
}

// apiKey makes a key in which every field is set but the last use.
func apiKey(id string) store.APIKey {
	return store.APIKey{
		ID: id, Tenant: "tenant-b", Scopes: []string{"sched:r", "sched:w"},
		Channels:  []string{"rabbitmq:acme-*", "https://example.com/*"},
		CreatedAt: t0 - 5, ExpiresAt: t0 + 5, SecretHash: sha256.Sum256([]byte(id)),
	}
}

func (x *trial) createKey(key store.APIKey) {
	x.Helper()
	if err := x.store.CreateKey(x.ctx, key); err != nil {
		x.Fatalf("CreateKey of %s: %v", key.ID, err)
	}
}

func (x *trial) revokeKey(id string) {
	x.Helper()
	if err := x.store.RevokeKey(x.ctx, id); err != nil {
		x.Fatalf("RevokeKey of %s: %v", id, err)
	}
}

func (x *trial) useKeys(uses ...store.KeyUse) {
	x.Helper()
	if err := x.store.UseKeys(x.ctx, uses); err != nil {
		x.Fatalf("UseKeys of %v: %v", uses, err)
	}
}

func (x *trial) keysVersion() uint64 {
	x.Helper()
	v, err := x.store.KeysVersion(x.ctx)
	if err != nil {
		x.Fatalf("KeysVersion: %v", err)
	}
	return v
}

func (x *trial) wantKeys(want ...store.APIKey) {
	x.Helper()
	got, err := x.store.Keys(x.ctx)
	if err != nil {
		x.Fatalf("Keys: %v", err)
	}
	byID := func(a, b store.APIKey) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(got, byID)
	slices.SortFunc(want, byID)
	if len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
		x.Errorf("the API keys are %+v, want %+v", got, want)
	}
}

// keysSurvive is a durable check: what was made is there, and what was revoked is not.
func keysSurvive(x *trial) {
	kept, gone := apiKey("kept"), apiKey("gone")
	x.createKey(kept)
	x.createKey(gone)
	x.revokeKey("gone")
	x.useKeys(store.KeyUse{ID: "kept", At: t0})
	x.crash()
	got, err := x.store.Keys(x.ctx)
	if err != nil || len(got) != 1 {
		x.Fatalf("after the crash the API keys are %+v, %v; want only %q", got, err, kept.ID)
	}
	got[0].LastUsedAt = 0 // may be lost
	if !reflect.DeepEqual(got[0], kept) {
		x.Errorf("after the crash the API key is %+v, want %+v", got[0], kept)
	}
}
