package auth

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

const (
	// LookEvery is how often a node looks whether another one has made or revoked a key.
	LookEvery = 250 * time.Millisecond
	// NoteEvery is how often a node writes when keys were last used.
	NoteEvery = 10 * time.Second

	lookTimeout = 5 * time.Second
	lastTimeout = 2 * time.Second // of what is noted at the end
	useStep     = time.Second     // uses that are closer together count as one
)

// Config is what a Keeper needs.
type Config struct {
	Store    store.Keys
	AdminKey string // [CheckAdminKey] accepts it; "": there is none
	Now      func() postdate.Time
	Log      *slog.Logger
}

// Keeper knows all API keys, makes and revokes them. It is safe for concurrent use.
type Keeper struct {
	c    Config
	book atomic.Pointer[book]

	mu      sync.Mutex // guards what follows, and writes of book
	read    bool       // the book is that of version, or newer
	version uint64
	changes int // that this node made

	noting sync.Mutex // held while uses are written
}

// entry is one key in the book.
type entry struct {
	hash     [sha256.Size]byte
	identity Identity

	used  atomic.Int64 // when it was last used on this node
	noted int64        // what of it is in the store; guarded by Keeper.noting
}

// NewKeeper makes a keeper that knows --admin-key alone. Look reads the others.
func NewKeeper(c Config) *Keeper {
	k := &Keeper{c: c}
	first := &book{}
	if c.AdminKey != "" {
		hash := sha256.Sum256([]byte(c.AdminKey))
		first.admin = &hash
	}
	k.book.Store(first)
	return k
}

// Authenticate says whose key an Authorization header carries, or why nobody's. With [Expired]
// it returns the identity too, for a log.
func (k *Keeper) Authenticate(header []byte) (*Identity, Refusal) {
	now := k.c.Now()
	identity, e, refusal := k.book.Load().authenticate(header, now)
	if refusal == Accepted && e != nil {
		e.use(now)
	}
	return identity, refusal
}

// use notes a use. The time never goes back, whatever the clock does.
func (e *entry) use(now postdate.Time) {
	if old := e.used.Load(); int64(now) >= old+useStep.Milliseconds() {
		e.used.CompareAndSwap(old, int64(now))
	}
}

// Look reads the keys if they have changed.
func (k *Keeper) Look(ctx context.Context) error {
	k.mu.Lock()
	read, known, changes := k.read, k.version, k.changes
	k.mu.Unlock()
	version, err := k.c.Store.KeysVersion(ctx)
	if err != nil || read && version == known {
		return err
	}
	all, err := k.c.Store.Keys(ctx)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changes != changes {
		return nil // what was read may be older than this node's own change: the next look tells
	}
	old := k.book.Load().keys
	keys := make(map[string]*entry, len(all))
	for i := range all {
		if e := old[all[i].ID]; e != nil && e.hash == all[i].SecretHash {
			keys[all[i].ID] = e
		} else {
			keys[all[i].ID] = entryOf(&all[i])
		}
	}
	k.write(keys)
	k.read, k.version = true, version
	return nil
}

func entryOf(key *store.APIKey) *entry {
	e := &entry{hash: key.SecretHash, identity: Identity{KeyID: key.ID, Tenant: key.Tenant, Channels: key.Channels,
		ExpiresAt: key.ExpiresAt}}
	for _, s := range key.Scopes {
		e.identity.Scopes = append(e.identity.Scopes, Scope(s))
	}
	return e
}

func (k *Keeper) write(keys map[string]*entry) {
	k.book.Store(&book{admin: k.book.Load().admin, keys: keys})
}

// change changes the book by what this node did in the store. The next look reads all keys: what
// others did meanwhile may be in the version that is known already.
func (k *Keeper) change(f func(keys map[string]*entry)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	keys := maps.Clone(k.book.Load().keys)
	if keys == nil {
		keys = map[string]*entry{}
	}
	f(keys)
	k.write(keys)
	k.changes++
	k.read = false
}

// Run looks at the store and notes uses until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	look, note := time.NewTicker(LookEvery), time.NewTicker(NoteEvery)
	defer look.Stop()
	defer note.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTimeout)
			defer cancel()
			_ = k.note(last) // a use is worth no more than a try
			return
		case <-note.C:
			limited, cancel := context.WithTimeout(ctx, lookTimeout)
			_ = k.note(limited) // likewise; the next one has it too
			cancel()
		case <-look.C:
			limited, cancel := context.WithTimeout(ctx, lookTimeout)
			err := k.Look(limited)
			cancel()
			if err != nil && !failing && ctx.Err() == nil {
				k.c.Log.Warn("the API keys cannot be read: until they can, revoked ones may be accepted",
					"error", err)
			}
			failing = err != nil
		}
	}
}

// note writes when keys were last used.
func (k *Keeper) note(ctx context.Context) error {
	k.noting.Lock()
	defer k.noting.Unlock()
	var uses []store.KeyUse
	keys := k.book.Load().keys
	for id, e := range keys {
		if at := e.used.Load(); at > e.noted {
			uses = append(uses, store.KeyUse{ID: id, At: postdate.Time(at)})
		}
	}
	if len(uses) == 0 {
		return nil
	}
	if err := k.c.Store.UseKeys(ctx, uses); err != nil {
		return err
	}
	for _, use := range uses {
		keys[use.ID].noted = int64(use.At)
	}
	return nil
}
