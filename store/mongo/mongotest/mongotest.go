// Package mongotest gives tests a real MongoDB replica set.
//
// A test that only needs a database calls [Fresh] or [URI], which share one set
// among the tests of a program; one that kills, stops or deposes servers calls
// [Start] and gets a set of its own. They fail the test where no server can be
// had: they never skip. Everything listens on the loopback interface, keeps its
// data in a temporary folder, and is gone when the test program ends, however it
// ends.
package mongotest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate/internal/proctest"
)

// dropTimeout bounds the removal of a test's database.
const dropTimeout = 60 * time.Second

// Fresh is the address of a new database in a set of one member.
func Fresh(t testing.TB) string { t.Helper(); return URI(t, 1) }

// URI is the address of a new database, which is dropped when the test ends, in
// the replica set that the environment variable POSTDATE_TEST_MONGODB names, else
// in one with so many members that is started once for the test program.
func URI(t testing.TB, members int) string {
	t.Helper()
	base := os.Getenv("POSTDATE_TEST_MONGODB")
	how := "at the address in POSTDATE_TEST_MONGODB"
	if base == "" {
		set, err := shared(members)
		if err != nil {
			t.Fatal(err)
		}
		base, how = set.URI(), started(members)
	}
	uri, name, err := fresh(base)
	if err != nil {
		t.Fatal(err)
	}
	client := connect(t, base)
	tell(t, client, how)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
		defer cancel()
		if err := drop(ctx, client.Database(name)); err != nil {
			t.Errorf("dropping the test's database: %v", err)
		}
		_ = client.Disconnect(ctx)
	})
	return uri
}

// drop removes a database. It tries until ctx ends: a set may be between two
// primaries.
func drop(ctx context.Context, db *mongo.Database) error {
	for {
		err := db.Drop(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func started(members int) string {
	if members == 1 {
		return "1 member, started by the tests"
	}
	return fmt.Sprintf("%d members, started by the tests", members)
}

// fresh puts a new database's name into an address.
func fresh(base string) (uri, name string, err error) {
	u, err := url.Parse(base)
	if err != nil {
		return "", "", fmt.Errorf("the address of the replica set, %q: %w", base, err)
	}
	name = fmt.Sprintf("test_%d_%08x", os.Getpid(), rand.Uint32())
	u.Path = "/" + name
	return u.String(), name, nil
}

// nameOf is the name of the database in an address.
func nameOf(t testing.TB, uri string) string {
	t.Helper()
	u, err := url.Parse(uri)
	if err != nil || len(u.Path) < 2 {
		t.Fatalf("mongotest: the address %q names no database: %v", uri, err)
	}
	return u.Path[1:]
}

func connect(t testing.TB, uri string) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

var sets struct {
	sync.Mutex
	of map[int]*Set
}

func shared(members int) (*Set, error) {
	sets.Lock()
	defer sets.Unlock()
	if set := sets.of[members]; set != nil {
		return set, nil
	}
	dir, err := os.MkdirTemp("", "mongotest-")
	if err != nil {
		return nil, err
	}
	set, err := open(dir, members, ownElection, TLS{})
	if err != nil {
		return nil, err
	}
	if sets.of == nil {
		sets.of = map[int]*Set{}
	}
	sets.of[members] = set
	return set, nil
}

// Start starts a replica set of the test's own, and ends it with the test.
func Start(t testing.TB, members int) *Set { t.Helper(); return StartTLS(t, members, TLS{}) }

// TLS names files in PEM.
type TLS struct {
	Both string // certificate and key, for the servers and for the clients of the set's addresses
	CA   string
}

// StartTLS is Start, with servers that speak only TLS, and only with clients that show a
// certificate that the CA has signed.
func StartTLS(t testing.TB, members int, secure TLS) *Set {
	t.Helper()
	dir, err := os.MkdirTemp("", "mongotest-")
	if err != nil {
		t.Fatal(err)
	}
	set, err := open(dir, members, quickElection, secure)
	if err != nil {
		t.Fatal(err)
	}
	set.t = t
	t.Cleanup(set.Close)
	client := connect(t, set.URI())
	defer client.Disconnect(context.Background())
	tell(t, client, started(members))
	return set
}

// Standalone starts a server that is no member of a replica set, and gives its
// address.
func Standalone(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mongotest-")
	if err != nil {
		t.Fatal(err)
	}
	set, err := lay(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	set.name = ""
	if err := set.run(0); err != nil {
		t.Fatal(err)
	}
	return "mongodb://" + set.members[0].address + "/"
}

// tell tells the test command which server was used.
func tell(t testing.TB, client *mongo.Client, how string) {
	t.Helper()
	proctest.Part(t, "mongodb, "+how, func() (string, error) {
		var info struct{ Version string }
		err := client.Database("admin").RunCommand(context.Background(),
			bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info)
		return "mongodb: real mongod " + info.Version + ", " + how, err
	})
}
