// Package mongo keeps messages in MongoDB, for a cluster of nodes. It passes store/storetest on
// a real replica set, and through a model of a mongos in front of one.
//
// It promises what package store promises: every acknowledged write is on the disks of a
// majority, and every read sees at least what this process wrote and read before, even across a
// change of primary. Claims and cancels meet on two documents, the message and its bucket's
// partition record; DESIGN.md in this directory says why one of them always gives way.
//
// Every query on messages names its index and, except for those of List, its buckets. What
// takes one command for one bucket takes one for all of a node's.
package mongo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

var _ store.Store = (*Store)(nil)

// Config says where the store is.
type Config struct {
	URI     string        // mongodb:// or mongodb+srv://, with the database's name
	Buckets int           // N: fixed at the store's birth, and checked from then on
	Timeout time.Duration // of a call without a deadline of its own, retries included
	Attempt time.Duration // of one try of a command, which is then repeated: a frozen server never answers
	// how long a call waits for a primary before it gives up; the URI's own setting takes
	// precedence
	Select time.Duration
	Share  time.Duration // how often what tenants have pending is shared with other nodes; 0: never
	Log    *slog.Logger
}

// DatabaseDefault is the database of an address that names none.
const DatabaseDefault = "postdate"

// DefaultConfig is a Config for the address uri.
func DefaultConfig(uri string) Config {
	return Config{
		URI: uri, Buckets: postdate.BucketsDefault, Timeout: 30 * time.Second, Attempt: 8 * time.Second,
		Select: 10 * time.Second, Share: time.Second,
		Log: slog.Default(),
	}
}

// Validate says what is wrong with c, as a sentence that helps.
func (c Config) Validate() error {
	if c.Buckets < 1 || c.Buckets > postdate.BucketsMax {
		return postdate.E(postdate.KindInvalid, "the number of buckets is %d: it must be between 1 and %d",
			c.Buckets, postdate.BucketsMax)
	}
	if c.Timeout <= 0 || c.Attempt <= 0 || c.Select <= 0 {
		return postdate.E(postdate.KindInvalid, "the timeouts of the MongoDB store must be positive")
	}
	if _, err := connstring.ParseAndValidate(c.URI); err != nil {
		return postdate.E(postdate.KindInvalid, "the address of the store is none that MongoDB's driver takes (%w): "+
			"write it like mongodb://host1,host2,host3/%s?replicaSet=rs0", err, DatabaseDefault)
	}
	return nil
}

// Store is an open store. Many nodes' processes may have it open at the same time.
type Store struct {
	c       Config
	client  *driver.Client
	sharded bool   // behind a mongos
	birth   uint32 // names this store in inbox cursors

	messages, partitions, leases, inboxes, channels, keys, tenants, usage, requests *driver.Collection
	consumers, jobs, registry                                                       *driver.Collection

	// seen is the latest operation time of the replica set that this process saw. Every read is
	// at least as new, so what was answered before a change of primary holds after it.
	seenMu sync.Mutex
	seen   bson.Timestamp

	appends appends
	kept    keptMarks
	counts  counts
	handed  handed

	life   context.Context // ends with Close
	end    func()
	keeper sync.WaitGroup

	// crowded holds the buckets whose last scan filled its page: a hint how the next read
	// should ask.
	crowdedMu sync.Mutex
	crowded   map[int]struct{}
}

// Open opens the store at c.URI, and creates it if there is none. Its errors are sentences for
// the operator.
func Open(ctx context.Context, c Config) (*Store, error) { return OpenWatched(ctx, c, nil) }

// OpenWatched is Open for tests: the monitor sees every command once the store is open.
func OpenWatched(ctx context.Context, c Config, monitor *event.CommandMonitor) (*Store, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	first, err := begin(ctx, c)
	if err != nil {
		return nil, err
	}
	s, err := connect(c, monitor)
	if err != nil {
		return nil, err
	}
	s.birth, s.sharded, s.seen = first.birth, first.sharded, first.seen
	if err := s.share(ctx); err != nil { // reads what is pending
		return nil, errors.Join(opening(err), s.Close())
	}
	if c.Share > 0 {
		s.keeper.Go(s.keepCounts)
		s.keeper.Go(s.keepRecounting)
	}
	return s, nil
}

// begin checks the server, and creates what is missing. It has a client of its own, with the
// same options, whose commands are monitored: the driver copies every command that is
// monitored, which would be too much for batches of messages.
func begin(ctx context.Context, c Config) (*Store, error) {
	assured := &assurance{}
	s, err := connect(c, assured.monitor())
	if err != nil {
		return nil, err
	}
	defer s.client.Disconnect(context.Background())
	if err := s.start(ctx); err != nil {
		return nil, s.tlsAdvised(err)
	}
	return s, assured.check()
}

// connect makes a store with a client of its own. It sends nothing yet.
func connect(c Config, monitor *event.CommandMonitor) (*Store, error) {
	client, err := driver.Connect(clientOptions(c).SetMonitor(monitor))
	if err != nil {
		return nil, postdate.E(postdate.KindInvalid, "the address of the store cannot be used: %w", err)
	}
	return newStore(c, client), nil
}

func newStore(c Config, client *driver.Client) *Store {
	name := DatabaseDefault
	if cs, err := connstring.Parse(c.URI); err == nil && cs.Database != "" {
		name = cs.Database
	}
	db := client.Database(name)
	life, end := context.WithCancel(context.Background())
	return &Store{
		c: c, client: client, counts: newCounts(), life: life, end: end,
		messages: db.Collection("messages"), partitions: db.Collection("partitions"), leases: db.Collection("leases"),
		inboxes: db.Collection("inboxes"), channels: db.Collection("channels"), keys: db.Collection("keys"),
		tenants: db.Collection("tenants"), usage: db.Collection("usage"), requests: db.Collection("requests"),
		consumers: db.Collection("consumers"), jobs: db.Collection("jobs"), registry: db.Collection("registry"),
		appends: appends{waiting: map[string]*appending{}}, crowded: map[int]struct{}{},
	}
}

// dueIndex is the name of the due index.
func (s *Store) dueIndex() string {
	if s.sharded {
		return indexDueKey
	}
	return indexDue
}

// clientOptions are the address's own, except for what the promises rest on.
func clientOptions(c Config) *options.ClientOptions {
	o := options.Client().ApplyURI(c.URI)
	if o.ServerSelectionTimeout == nil {
		o.SetServerSelectionTimeout(c.Select)
	}
	if o.AppName == nil {
		o.SetAppName("postdate")
	}
	durable(o)
	o.SetRegistry(bsonTypes())
	o.SetTimeout(c.Timeout)
	return o
}

// Buckets is N.
func (s *Store) Buckets() int { return s.c.Buckets }

// Exclusive is false: other nodes use the same store.
func (s *Store) Exclusive() bool { return false }

// Name implements store.Housekeeping.
func (s *Store) Name() string {
	return fmt.Sprintf("%s-%08x", s.messages.Database().Name(), s.birth)
}

// Close shares what was not shared yet, and closes the connections.
func (s *Store) Close() error {
	s.end()
	s.keeper.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), s.c.Select)
	defer cancel()
	if s.c.Share > 0 {
		if err := s.share(ctx); err != nil {
			s.c.Log.Warn("what tenants have pending could not be shared at the end: a recount will find it",
				"error", err)
		}
	}
	if err := s.client.Disconnect(ctx); err != nil {
		return postdate.E(postdate.KindUnknown, "closing the store: %w", err)
	}
	return nil
}

// doc makes a document of names and values in turn.
func doc(pairs ...any) bson.D {
	d := make(bson.D, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		d = append(d, bson.E{Key: pairs[i].(string), Value: pairs[i+1]})
	}
	return d
}
