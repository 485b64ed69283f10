package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// concurrency lets clients and owners work on a few buckets at the same time. Clients insert,
// cancel and replace messages around the time that is being claimed. Owners claim, publish and
// settle, and take the buckets from each other; they claim less of some channels, and claim
// each of those by itself. A ledger notes who was promised what, and at the end every message
// is accounted for.
func concurrency() []check {
	var checks []check
	for seed := range uint64(2) {
		checks = append(checks, check{
			fmt.Sprintf("what clients and owners are told at once holds, seed %d", seed),
			func(x *trial) { runFair(x, seed) },
		})
	}
	return checks
}

const (
	fairBuckets  = 3 // of the store's, so that all meet often
	fairClients  = 3
	fairOwners   = 3
	fairMessages = 250 // of each client
)

// The first route is never behind.
var fairRoutes = []postdate.Route{orders, slow, limited, "@default!high kafka:slow"}

// fair is one such run. Its time is a counter that the owners advance.
type fair struct {
	*trial
	now     atomic.Int64
	numbers atomic.Uint64 // of claims
	clients sync.WaitGroup
	turns   chan struct{} // one for each cycle of an owner, so that owners and clients keep pace

	mu     sync.Mutex // guards the ledger
	ledger map[postdate.Key]*account
	tokens [fairBuckets]map[uint64]bool // given out
	newest [fairBuckets]uint64
}

// account is what is known about one message. A version that was published and not certainly
// refused is out; a version that was taken back or settled must not come again.
type account struct {
	version   uint64          // the present one, as clients were told
	withdrawn map[uint64]bool // versions for which a cancel or a replace answered nil
	out       map[uint64]bool // versions that were published
	delivered uint64          // the version whose settlement as DELIVERED answered nil
	cancelled bool
}

func runFair(x *trial, seed uint64) {
	f := &fair{trial: x, ledger: map[postdate.Key]*account{}, turns: make(chan struct{}, 2*fairOwners)}
	for b := range f.tokens {
		f.tokens[b] = map[uint64]bool{}
	}
	f.now.Store(int64(t0))
	for c := range fairClients {
		f.clients.Go(func() { f.client(c, rand.New(rand.NewPCG(seed, uint64(c)))) })
	}
	var owners sync.WaitGroup
	for o := range fairOwners {
		owners.Go(func() { f.owner(fmt.Sprint("node-", o), rand.New(rand.NewPCG(seed, uint64(100+o)))) })
	}
	f.clients.Wait()
	close(f.turns)
	owners.Wait()
	f.drain()
	f.settleAccounts()
}

// client inserts messages that are due about now, and tries to take back or put off its own.
func (f *fair) client(n int, r *rand.Rand) {
	var mine []postdate.Message
	for i := range fairMessages {
		m := f.schedule(n, i, r)
		mine = append(mine, m)
		if got := f.store.Insert(f.ctx, []postdate.Message{m})[0]; got.Err != nil || !got.Created {
			f.Errorf("Insert of %s: got %+v", m.ScheduleID, got)
		}
		first := f.get(m.Key).Version
		f.mu.Lock()
		f.ledger[m.Key].version = first
		f.mu.Unlock()
		f.turns <- struct{}{}
		for range r.IntN(3) {
			f.turns <- struct{}{}
			some := mine[len(mine)-1-r.IntN(min(len(mine), 6))]
			if r.IntN(2) == 0 {
				f.takeBack(some)
			} else {
				f.putOff(some, r)
			}
		}
	}
}

func (f *fair) schedule(n, i int, r *rand.Rand) postdate.Message {
	at := postdate.Time(f.now.Load()) + postdate.Time(r.IntN(8)) - 2 // some of them late
	route := fairRoutes[r.IntN(len(fairRoutes))]
	for try := 0; ; try++ {
		key := bucket.KeyOf(route.Tenant(), fmt.Sprintf("c%d-%d-%d", n, i, try), f.store.Buckets())
		if key.Bucket >= fairBuckets {
			continue
		}
		m := postdate.Message{Key: key, ExecutionTime: at, Payload: []byte("{}")}
		onRoute(route)(&m)
		f.mu.Lock()
		f.ledger[key] = &account{withdrawn: map[uint64]bool{}, out: map[uint64]bool{}}
		f.mu.Unlock()
		return m
	}
}

func (f *fair) takeBack(m postdate.Message) {
	got := f.store.Cancel(f.ctx, []postdate.Key{m.Key}, t0)[0]
	switch {
	case got.Err == nil:
		f.withdraw(m.Key, got.State.Version, func(a *account) { a.cancelled = true })
	case postdate.KindOf(got.Err) != postdate.KindTooLate:
		f.Errorf("Cancel of %s: %v", m.ScheduleID, got.Err)
	}
}

func (f *fair) putOff(m postdate.Message, r *rand.Rand) {
	old, err := f.store.Get(f.ctx, m.Key)
	if err != nil {
		f.Errorf("Get of %s: %v", m.ScheduleID, err)
		return
	}
	m.ExecutionTime = postdate.Time(f.now.Load()) + postdate.Time(r.IntN(12)) - 2
	got, err := Replace(f.ctx, f.store, m, old.Version)
	switch {
	case err == nil && got.Version != old.Version+1:
		f.broken("Replace of %s at version %d answered version %d", m.ScheduleID, old.Version, got.Version)
	case err == nil:
		f.withdraw(m.Key, old.Version, func(a *account) { a.version = got.Version })
	case postdate.KindOf(err) != postdate.KindTooLate && postdate.KindOf(err) != postdate.KindConflict:
		f.Errorf("Replace of %s: %v", m.ScheduleID, err)
	}
}

// withdraw notes that a client was told that a version is taken back.
func (f *fair) withdraw(key postdate.Key, version uint64, note func(*account)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.ledger[key]
	if a.out[version] {
		f.broken("%s was taken back at version %d, which is published", key.ScheduleID, version)
	}
	a.withdrawn[version] = true
	note(a)
}

// held is a bucket as its owner knows it. What earlier owners had claimed is in doubt: they may
// still publish it.
type held struct {
	bucket int
	token  uint64
	gained bucket.Partition // the record, as it was found
	record bucket.Partition // the record, as it must be by now
	handed places           // up to where this owner read each channel
}

// owner works on a random bucket each turn. It takes the bucket if it does not hold it, and at
// times even if it does.
func (f *fair) owner(name string, r *rand.Rand) {
	holds := map[int]*held{}
	for range f.turns {
		f.now.Add(int64(r.IntN(2)))
		b := r.IntN(fairBuckets)
		h, ok := holds[b]
		if !ok || r.IntN(40) == 0 {
			h, ok = f.take(b, name)
		}
		delete(holds, b)
		if ok && f.cycle(h, r) {
			holds[b] = h
		}
	}
}

// take tries to acquire a bucket.
func (f *fair) take(b int, name string) (h *held, ok bool) {
	found, _, err := f.store.Look(f.ctx, []int{b})
	if err != nil || len(found) != 1 {
		f.Errorf("Look: got %+v, %v", found, err)
		return h, false
	}
	seen := found[0].Token
	got, err := f.store.Acquire(f.ctx, []store.Acquisition{{Bucket: b, SeenToken: seen, Owner: name, Lease: name}})
	if err != nil || len(got) != 1 {
		f.Errorf("Acquire: got %+v, %v", got, err)
		return h, false
	}
	if !got[0].OK {
		return h, false
	}
	p := got[0].Partition
	h = &held{bucket: b, token: p.Token, gained: p, record: p, handed: places{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.token <= seen || f.tokens[b][h.token] {
		f.broken("bucket %d was seen at token %d and acquired under token %d: that is not a new one", b, seen, h.token)
	}
	f.tokens[b][h.token] = true
	f.newest[b] = max(f.newest[b], h.token)
	return h, true
}

// cycle claims, publishes and settles. It returns false if the owner lost the bucket, or died.
func (f *fair) cycle(h *held, r *rand.Rand) bool {
	passedOn, before := f.promised(h)
	c := f.nextClaim(h, r)
	result := f.store.Claim(f.ctx, []store.Claim{c})[0]
	if postdate.KindOf(result.Err) == postdate.KindConflict {
		f.broken("somebody else claimed bucket %d under token %d: %v", h.bucket, h.token, result.Err)
	}
	if result.Err != nil {
		f.wantKind(result.Err, postdate.KindFenced)
		return false
	}
	if passedOn {
		f.broken("bucket %d was claimed with token %d, which had been passed on before", h.bucket, h.token)
	}
	f.noteClaimed(h, &c, &result)
	var settlements []store.Settlement
	lives := true
	for _, rec := range result.Due {
		if before[versionOf{rec.Key, rec.Version}] {
			f.broken("a scan returned %s at version %d, which was settled or taken back before it began",
				rec.ScheduleID, rec.Version)
		}
		if rec.Status != postdate.Pending || rec.Parked {
			f.broken("a scan returned %+v", rec.State)
		}
		s := f.publish(rec, h, r)
		if r.IntN(30) == 0 {
			lives = false // it dies between publish and settle
			break
		}
		settlements = append(settlements, s)
	}
	if err := f.store.Settle(f.ctx, settlements); err != nil {
		f.Errorf("Settle: %v", err)
	}
	f.noteSettled(settlements)
	return lives
}

// nextClaim claims all channels, or one that is behind. At times a channel falls behind: down
// to what this owner read of it and others had claimed before; and at times all of a tenant.
func (f *fair) nextClaim(h *held, r *rand.Rand) store.Claim {
	to := postdate.Time(f.now.Load())
	if r.IntN(4) == 0 {
		to -= postdate.Time(r.IntN(9)) // a claim that was delayed
	}
	c := everything(h.bucket, h.token, to)
	c.Number, c.Scan.Limit = f.numbers.Add(1), 1+r.IntN(12)
	c.Behind = maps.Clone(h.record.Behind)
	if route := fairRoutes[r.IntN(len(fairRoutes))]; route != orders {
		_, behind := c.Behind[route]
		switch n := r.IntN(4); {
		case behind && n > 0:
			c.Only = route
		case behind:
			delete(c.Behind, route)
		case n == 0:
			if c.Behind == nil {
				c.Behind = places{}
			}
			c.Behind[route] = h.gained.ClaimedFor(route).Latest(h.handed[route])
		}
	}
	if r.IntN(4) > 0 || c.Only != "" {
		return c
	}
	if _, behind := c.Behind[acme]; behind {
		c.Only = acme
	} else {
		if c.Behind == nil {
			c.Behind = places{}
		}
		c.Behind[acme] = h.record.Claimed
	}
	return c
}

// noteClaimed checks what a claim returned against what it covers. Nobody else writes claims
// while the token is the same, so the record is known.
func (f *fair) noteClaimed(h *held, c *store.Claim, result *store.ClaimResult) {
	f.wantCovered(c, *result)
	written := c.Claim
	written.To = result.To
	next, err := h.record.Claim(written)
	if err != nil {
		f.broken("a claim went through after which the record is to be %+v: %v", h.record, err)
	}
	h.record = next
	found, _, err := f.store.Look(f.ctx, []int{h.bucket})
	if err != nil {
		f.Errorf("Look: %v", err)
	}
	for _, p := range found {
		if p.Token == h.token && !p.Equal(h.record) {
			f.broken("after the claim %+v the record is %+v, want %+v", *c, p, h.record)
		}
	}
	for i := range result.Due {
		rec := &result.Due[i]
		if at := positionOf(rec); h.record.ClaimedFor(rec.Route()).Before(at) {
			f.broken("a scan returned a message of %s at %v, and the record is %+v", rec.Channel, at, h.record)
		}
		h.handed[rec.Route()] = h.handed[rec.Route()].Latest(positionOf(rec))
	}
}

type versionOf struct {
	key     postdate.Key
	version uint64
}

// promised is what was promised before a claim begins: whether its token was
// passed on, and what its scan must not return.
func (f *fair) promised(h *held) (passedOn bool, never map[versionOf]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	never = map[versionOf]bool{}
	for key, a := range f.ledger {
		if key.Bucket != h.bucket {
			continue
		}
		for version := range a.withdrawn {
			never[versionOf{key, version}] = true
		}
		if a.delivered != 0 {
			never[versionOf{key, a.delivered}] = true
		}
	}
	return h.token < f.newest[h.bucket], never
}

// publish decides the outcome of an attempt.
func (f *fair) publish(rec postdate.Record, h *held, r *rand.Rand) store.Settlement {
	s := store.Settlement{
		Key: rec.Key, ExecutionTime: rec.ExecutionTime, Version: rec.Version, Token: h.token, At: rec.AttemptTime,
		Attempts:          rec.Attempts + 1,
		PossibleDuplicate: rec.PossibleDuplicate || !h.gained.ClaimedFor(rec.Route()).Before(positionOf(&rec)),
	}
	n := r.IntN(10)
	if n < 2 { // the broker surely refused: it may still be taken back
		s.How, s.AttemptTime = store.SettleRetry, rec.AttemptTime+postdate.Time(1+r.IntN(9))
		return s
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.ledger[rec.Key]
	if a.withdrawn[rec.Version] {
		f.broken("%s is published at version %d, which was taken back", rec.ScheduleID, rec.Version)
	}
	a.out[rec.Version] = true
	switch n {
	case 2: // unknown
		s.How, s.AttemptTime, s.PossibleDuplicate = store.SettleRetry, rec.AttemptTime+5, true
	case 3:
		s.How = store.SettleFailed
	default:
		s.How = store.SettleDelivered
	}
	return s
}

// noteSettled notes what is certainly final: a delivery, whoever settled it. Any other
// settlement may have come too late to count.
func (f *fair) noteSettled(settlements []store.Settlement) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range settlements {
		if s.How == store.SettleDelivered {
			f.ledger[s.Key].delivered = s.Version
		}
	}
}

// drain delivers what is left.
func (f *fair) drain() {
	f.claims = f.numbers.Load()
	for b := range fairBuckets {
		token := f.own(b)
		c := everything(b, token, postdate.Time(f.now.Load())+100)
		c.Scan.Limit = 7
		left := f.due(c)
		for _, rec := range left {
			if f.ledger[rec.Key].withdrawn[rec.Version] {
				f.broken("the last scan returned %s at version %d, which was taken back", rec.ScheduleID, rec.Version)
			}
		}
		f.settleAll(token, left)
	}
}

// settleAccounts checks what everybody was told against what is in the store.
func (f *fair) settleAccounts() {
	withdrawn, published := 0, 0
	for key, a := range f.ledger {
		rec := f.get(key)
		withdrawn, published = withdrawn+len(a.withdrawn), published+len(a.out)
		switch {
		case !rec.Status.Final():
			f.Errorf("%s is %s in the end: nobody settled it", key.ScheduleID, rec.Status)
		case a.cancelled != (rec.Status == postdate.Cancelled):
			f.broken("%s is %s, and that a cancel answered nil is %t", key.ScheduleID, rec.Status, a.cancelled)
		case a.delivered != 0 && rec.Status != postdate.Delivered && rec.Status != postdate.DeliveryFailed:
			f.broken("%s is %s, and was settled as DELIVERED", key.ScheduleID, rec.Status)
		case rec.Version != a.version:
			f.broken("%s is at version %d, and clients were told %d", key.ScheduleID, rec.Version, a.version)
		}
		for version := range a.out {
			if a.withdrawn[version] {
				f.broken("%s was published at version %d, which was taken back", key.ScheduleID, version)
			}
		}
	}
	if withdrawn == 0 || published == 0 {
		f.Errorf("%d versions were taken back and %d published: such a run shows nothing", withdrawn, published)
	}
}
