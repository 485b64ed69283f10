package mongotest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/postdate/postdate/internal/proctest"
)

const (
	startTimeout = 60 * time.Second // it takes 2 s on an idle machine
	callTimeout  = 30 * time.Second // likewise
)

// How long a set's members hear of no primary before they elect another one.
const (
	quickElection = 2 * time.Second  // for sets whose primaries are deposed on purpose
	ownElection   = 10 * time.Second // MongoDB's own: a machine that stalls deposes nobody
)

// Set is a replica set whose servers are processes of the test program. Methods
// that take a member count from 0; they fail the test where they cannot do what
// they say, and panic in a set that [Open] made.
type Set struct {
	t       testing.TB // nil where Open made it
	dir     string
	name    string // "": no replica set
	tls     TLS
	group   *proctest.Group
	members []*member
}

type member struct {
	address string
	process *os.Process
	exit    chan struct{} // closed when the present run has ended
}

// Open starts a replica set that keeps its data in dir, for programs that are no
// tests. dir is removed with the set, at [Set.Close] or at the end of the program.
func Open(dir string, members int) (*Set, error) { return open(dir, members, quickElection, TLS{}) }

func open(dir string, members int, election time.Duration, secure TLS) (*Set, error) {
	s, err := lay(dir, members)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	s.tls = secure
	for i := range s.members {
		if err := s.run(i); err != nil {
			s.Close()
			return nil, err
		}
	}
	if err := s.initiate(election); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// lay makes folders and picks ports.
func lay(dir string, members int) (*Set, error) {
	s := &Set{dir: dir, name: "postdate"}
	ports, err := proctest.Ports(members)
	if err != nil {
		return nil, err
	}
	for i, port := range ports {
		if err := os.MkdirAll(filepath.Join(dir, fmt.Sprint(i)), 0o700); err != nil {
			return nil, err
		}
		s.members = append(s.members, &member{address: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	s.group, err = proctest.Idle(dir)
	return s, err
}

// run starts a member and waits until it takes connections.
func (s *Set) run(i int) error {
	path, err := program()
	if err != nil {
		return err
	}
	m := s.members[i]
	_, port, _ := net.SplitHostPort(m.address)
	args := []string{
		"--dbpath", filepath.Join(s.dir, fmt.Sprint(i)), "--port", port, "--bind_ip", "127.0.0.1", "--nounixsocket",
		"--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "256", "--quiet",
		"--setParameter", "diagnosticDataCollectionEnabled=false",
		"--setParameter", "enableTestCommands=1",
		"--logpath", s.logPath(i), "--logappend",
	}
	if s.name != "" {
		args = append(args, "--replSet", s.name)
	}
	if s.tls != (TLS{}) {
		args = append(args, "--tlsMode", "requireTLS", "--tlsCertificateKeyFile", s.tls.Both, "--tlsCAFile", s.tls.CA)
	}
	server := exec.Command(path, args...)
	server.Dir = s.dir
	if m.exit, err = s.group.Start(server); err != nil {
		return err
	}
	m.process = server.Process
	deadline := time.Now().Add(startTimeout)
	for {
		conn, err := net.Dial("tcp", m.address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-m.exit:
			return fmt.Errorf("mongod ended at its start:\n%s", proctest.Tail(s.logPath(i)))
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("mongod takes no connection after %s: %w\n%s",
				startTimeout, err, proctest.Tail(s.logPath(i)))
		}
	}
}

// initiate makes a replica set of the members and waits until all have its data: one that
// has not yet takes no part when the primary is lost.
func (s *Set) initiate(election time.Duration) error {
	var members bson.A
	for i, m := range s.members {
		members = append(members, bson.D{{Key: "_id", Value: i}, {Key: "host", Value: m.address}})
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err := s.direct(0, func(admin *mongo.Database) error {
		return admin.RunCommand(ctx, bson.D{{Key: "replSetInitiate", Value: bson.D{
			{Key: "_id", Value: s.name}, {Key: "members", Value: members},
			{Key: "settings", Value: bson.D{{Key: "electionTimeoutMillis", Value: election.Milliseconds()},
				{Key: "heartbeatIntervalMillis", Value: 500}}},
		}}}).Err()
	})
	if err != nil {
		return fmt.Errorf("replSetInitiate: %w", err)
	}
	if err := s.elect(ctx); err != nil {
		return fmt.Errorf("the first election: %w", err)
	}
	if err := s.sync(ctx); err != nil {
		return fmt.Errorf("the first synchronization: %w", err)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(s.URI()).SetServerSelectionTimeout(startTimeout))
	if err != nil {
		return err
	}
	defer client.Disconnect(context.Background())
	return client.Ping(ctx, readpref.Primary())
}

// elect makes the first member the primary. Unasked, a set of several would wait for
// its whole electionTimeoutMillis.
func (s *Set) elect(ctx context.Context) error {
	return s.direct(0, func(admin *mongo.Database) error {
		for {
			err := admin.RunCommand(ctx, bson.D{{Key: "replSetStepUp", Value: 1}}).Err()
			if err == nil || ctx.Err() != nil {
				return err
			}
			time.Sleep(20 * time.Millisecond) // the others may not know of the set yet
		}
	})
}

// sync waits until every member is the primary or a secondary.
func (s *Set) sync(ctx context.Context) error {
	for i := range s.members {
		for !s.hasData(i) {
			if ctx.Err() != nil {
				return fmt.Errorf("member %d: %w", i, ctx.Err())
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

// direct talks to one member, whatever its state.
func (s *Set) direct(i int, f func(admin *mongo.Database) error) error {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + s.members[i].address +
		"/?directConnection=true" + s.query()).
		SetServerSelectionTimeout(callTimeout))
	if err != nil {
		return err
	}
	defer client.Disconnect(context.Background())
	return f(client.Database("admin"))
}

// URI is the address of the whole set.
func (s *Set) URI() string {
	var addresses []string
	for _, m := range s.members {
		addresses = append(addresses, m.address)
	}
	return "mongodb://" + strings.Join(addresses, ",") + "/?replicaSet=" + s.name + s.query()
}

// Plain is the address of the set without TLS.
func (s *Set) Plain() string { return strings.TrimSuffix(s.URI(), s.query()) }

// query is the end of an address's query.
func (s *Set) query() string {
	if s.tls == (TLS{}) {
		return ""
	}
	return "&tls=true&tlsCAFile=" + url.QueryEscape(s.tls.CA) + "&tlsCertificateKeyFile=" + url.QueryEscape(s.tls.Both)
}

// Address is a member's own address, host:port.
func (s *Set) Address(i int) string { return s.members[i].address }

// Fresh is the address of a new database in the set.
func (s *Set) Fresh() string {
	uri, _, err := fresh(s.URI())
	s.must("name a database", err)
	return uri
}

// Primary is the member that is the primary now. It waits for one.
func (s *Set) Primary() int {
	deadline := time.Now().Add(startTimeout)
	for {
		for i := range s.members {
			if s.isPrimary(i) {
				return i
			}
		}
		if time.Now().After(deadline) {
			s.must("find a primary", errors.New("there is none"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *Set) isPrimary(i int) bool {
	h, err := s.hello(i)
	return err == nil && h.IsWritablePrimary
}

func (s *Set) hasData(i int) bool {
	h, err := s.hello(i)
	return err == nil && (h.IsWritablePrimary || h.Secondary)
}

// hello is what a member says of itself.
type hello struct{ IsWritablePrimary, Secondary bool }

func (s *Set) hello(i int) (h hello, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err = s.direct(i, func(admin *mongo.Database) error {
		return admin.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&h)
	})
	return h, err
}

// StepDown makes the primary give up, and another member be elected.
func (s *Set) StepDown() {
	for deadline := time.Now().Add(startTimeout); ; {
		err := s.stepDown(s.Primary())
		if err == nil || mongo.IsNetworkError(err) { // it may cut its connections at that
			return
		}
		if time.Now().After(deadline) {
			s.must("step down", err)
		}
	}
}

// stepDown fails where the member stepped down by itself right before.
func (s *Set) stepDown(primary int) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return s.direct(primary, func(admin *mongo.Database) error {
		return admin.RunCommand(ctx, bson.D{{Key: "replSetStepDown", Value: 5}, {Key: "force", Value: true}}).Err()
	})
}

// FailCommands has the primary fail commands as data says, by its fail point failCommand. mode is
// "alwaysOn", "off", or {times: n}.
func (s *Set) FailCommands(mode any, data bson.D) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	s.must("let commands fail", s.direct(s.Primary(), func(admin *mongo.Database) error {
		return admin.RunCommand(ctx, bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode}, {Key: "data", Value: data},
		}).Err()
	}))
}

// Kill ends a member with SIGKILL, and returns when it has ended.
func (s *Set) Kill(i int) {
	s.must("kill", s.members[i].process.Kill())
	<-s.members[i].exit
}

// Restart starts a member again after [Set.Kill], with its data.
func (s *Set) Restart(i int) { s.must("restart", s.run(i)) }

// Stop stops a member with SIGSTOP: it keeps its connections and answers nobody.
func (s *Set) Stop(i int) { s.must("stop", s.members[i].process.Signal(syscall.SIGSTOP)) }

// Cont lets a stopped member go on.
func (s *Set) Cont(i int) { s.must("continue", s.members[i].process.Signal(syscall.SIGCONT)) }

// Close kills all members and removes their data.
func (s *Set) Close() { s.group.End() }

func (s *Set) must(what string, err error) {
	if err == nil {
		return
	}
	if s.t == nil {
		panic(fmt.Sprintf("mongotest: cannot %s: %v", what, err))
	}
	s.t.Helper()
	s.t.Fatalf("mongotest: cannot %s: %v", what, err)
}

func (s *Set) logPath(i int) string { return filepath.Join(s.dir, fmt.Sprintf("%d.log", i)) }
