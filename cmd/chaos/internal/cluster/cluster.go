//go:build linux

// Package cluster runs a whole Postdate cluster of real processes for a fault campaign: nodes,
// a MongoDB replica set of three, a RabbitMQ broker and, to cut nodes off from each other or
// from their store, network namespaces.
//
// It promises that none of these outlives this program, however it ends, and that the machine's
// own network and mounts are not changed.
package cluster

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postdate/postdate/internal/proctest"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// Config says what a cluster consists of.
type Config struct {
	Dir      string // logs and data
	Nodes    int    // how many can run; Open starts none
	Embedded bool   // one node on the embedded store, no MongoDB
	DiskMiB  int    // size of a file system for the embedded store; 0: the store is in Dir
	Isolated bool   // each node has a network namespace of its own
	Clock    bool   // MongoDB's clock can be shifted
	Race     bool   // build the nodes with the race detector
	Binary   string // the command; "": build it
}

// Possible says why this machine cannot run c; nil if it can.
func (c Config) Possible() error {
	if c.DiskMiB > 0 && os.Geteuid() != 0 {
		return errors.New("a file system can only be mounted by root")
	}
	if c.Clock {
		if _, err := faketime(); err != nil {
			return err
		}
	}
	if c.Isolated {
		return canIsolate()
	}
	return nil
}

// Cluster is what a campaign works with.
type Cluster struct {
	Mongo  *Mongo  // nil if the store is embedded
	Rabbit *Rabbit // always there
	Nodes  []*Node
	Disk   *Disk  // nil if the store has no file system of its own
	Clock  *Clock // nil if the clocks cannot be shifted

	dir, binary string
	wires       *wires
	servers     operator
}

// Mongo is the replica set. Its methods, like Rabbit's, panic if they fail: see [Try].
type Mongo struct{ *mongotest.Set }

// Rabbit is the broker.
type Rabbit struct{ *rabbitmqtest.Broker }

// Open builds the command and starts the servers, but no node.
func Open(c Config) (cluster *Cluster, err error) {
	cl := &Cluster{dir: c.Dir, binary: c.Binary}
	defer func() {
		if err != nil {
			cl.Close()
		}
	}()
	if cl.binary == "" {
		cl.binary = filepath.Join(c.Dir, "postdate")
		if err := build(cl.binary, c.Race); err != nil {
			return nil, err
		}
	}
	if c.Clock {
		if cl.Clock, err = newClock(c.Dir); err != nil {
			return nil, err
		}
	}
	if c.DiskMiB > 0 {
		if cl.Disk, err = newDisk(filepath.Join(c.Dir, "disk"), c.DiskMiB); err != nil {
			return nil, err
		}
	}
	err = Try(func() {
		cl.Rabbit = &Rabbit{rabbitmqtest.Start(&cl.servers)}
		if !c.Embedded {
			cl.Mongo = &Mongo{mongotest.Start(&cl.servers, 3)}
		}
	})
	if err != nil {
		return nil, err
	}
	return cl, cl.layNodes(c)
}

// build builds the command from the module in which this program was started.
func build(path string, race bool) error {
	args := []string{"build", "-o", path}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "github.com/postdate/postdate/cmd/postdate")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the command: %w\n%s", err, out)
	}
	return nil
}

// layNodes prepares the nodes, with their networks and flags.
func (cl *Cluster) layNodes(c Config) (err error) {
	if c.Isolated {
		if cl.wires, err = newWires(); err != nil {
			return err
		}
	}
	store := "pebble:" + filepath.Join(c.Dir, "disk", "store")
	if cl.Mongo != nil {
		store = cl.Mongo.Fresh()
	}
	gossip, err := cl.gossipAddresses(c)
	if err != nil {
		return err
	}
	for i := range c.Nodes {
		n := &Node{Number: i + 1, Name: fmt.Sprintf("n%d", i+1), cluster: cl}
		if n.api, err = n.newAPI(); err != nil {
			return err
		}
		n.args = []string{"serve", "--http", "127.0.0.1:0", "--insecure", "--store", store, "--rabbitmq", cl.Rabbit.URL,
			"--node-id", n.Name}
		if cl.Mongo != nil {
			n.args = append(n.args, "--gossip", gossip[i], "--join", strings.Join(gossip, ","))
		}
		cl.Nodes = append(cl.Nodes, n)
		if !c.Isolated {
			continue
		}
		if err := cl.isolate(n, store); err != nil {
			return err
		}
	}
	return nil
}

func (cl *Cluster) gossipAddresses(c Config) (all []string, err error) {
	ports, err := proctest.Ports(c.Nodes)
	if err != nil {
		return nil, err
	}
	for i := range c.Nodes {
		if c.Isolated {
			all = append(all, address(i+1)+":7946")
			continue
		}
		all = append(all, fmt.Sprintf("127.0.0.1:%d", ports[i]))
	}
	return all, nil
}

// isolate gives a node a namespace, with gates to the servers.
func (cl *Cluster) isolate(n *Node, store string) (err error) {
	if n.space, err = cl.wires.attach(n.Number); err != nil {
		return err
	}
	broker, err := url.Parse(cl.Rabbit.URL)
	if err != nil {
		return err
	}
	if n.Broker, err = openGate(n.space, []string{broker.Host}); err != nil {
		return err
	}
	members, err := url.Parse(store)
	if err != nil {
		return err
	}
	n.Store, err = openGate(n.space, strings.Split(members.Host, ","))
	return err
}

// Plug connects a node to the other nodes, or disconnects it. Its connections to the store and
// the broker are not affected.
func (cl *Cluster) Plug(n *Node, in bool) error { return cl.wires.plug(n.Number, in) }

// Deafen loses what a node sends to another, while it still hears the other; or ends that.
func (cl *Cluster) Deafen(n, other *Node, on bool) error {
	verb := "del"
	if on {
		verb = "add"
	}
	return n.space.ip("route", verb, "blackhole", address(other.Number)+"/32")
}

// Close ends everything. The logs stay.
func (cl *Cluster) Close() {
	for _, n := range cl.Nodes {
		if n.Running() {
			_ = n.Kill()
		}
		n.api.Close()
		for _, g := range []*Gate{n.Store, n.Broker} {
			if g != nil {
				g.close()
			}
		}
		if n.space != nil {
			n.space.close()
		}
	}
	if cl.wires != nil {
		cl.wires.close()
	}
	if cl.Disk != nil {
		cl.Disk.close()
	}
	cl.servers.close()
	_ = os.Remove(filepath.Join(cl.dir, "postdate")) // only logs stay
}

// operator takes the place of a test, to which the servers' packages report. A failure is a
// panic, which [Try] turns into an error.
type operator struct {
	testing.TB
	cleanups []func()
}

// failure is the value with which an operator panics.
type failure string

// Helper is part of testing.TB.
func (o *operator) Helper() {}

// Name is part of testing.TB.
func (o *operator) Name() string { return "chaos" }

// Failed is part of testing.TB. The campaign itself reports failures.
func (o *operator) Failed() bool { return false }

// Cleanup registers f, to be called when the cluster is closed.
func (o *operator) Cleanup(f func()) { o.cleanups = append(o.cleanups, f) }

// Logf is part of testing.TB.
func (o *operator) Logf(string, ...any) {}

// Errorf panics with a failure.
func (o *operator) Errorf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

// Fatalf panics with a failure.
func (o *operator) Fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

// Fatal panics with a failure.
func (o *operator) Fatal(args ...any) { panic(failure(fmt.Sprint(args...))) }

func (o *operator) close() {
	for i := len(o.cleanups) - 1; i >= 0; i-- {
		o.cleanups[i]()
	}
	o.cleanups = nil
}

// Try runs f and turns a failure of the servers into an error.
func Try(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = fmt.Errorf("%s", string(r))
		default:
			panic(r)
		}
	}()
	f()
	return nil
}
