package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/postdate/postdate/client"
)

// nodes are nodes of Postdate on one new store, with a client for each. As a peer they share the
// calls: each goes to the next node.
type nodes struct {
	servers  []*server
	clients  []*client.Client
	inboxes  int
	database *database // nil: the store is the embedded one, in data
	data     string

	turn   atomic.Uint64
	handle atomic.Pointer[func([]byte)] // what gets deliveries
}

// nodesWish says which nodes are wanted.
type nodesWish struct {
	binary  string
	root    string // a temporary folder
	count   int
	buckets int
	inboxes int    // messages are spread over so many
	mongodb string // the address of the servers; "": the embedded store
}

// startNodes starts nodes and returns when all of them have their share of the buckets.
func startNodes(ctx context.Context, w nodesWish) (n *nodes, err error) {
	n = &nodes{inboxes: w.inboxes}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.stop())
		}
	}()
	dir, err := os.MkdirTemp(w.root, "nodes-")
	if err != nil {
		return n, err
	}
	n.data = filepath.Join(dir, "store")
	store := "pebble:" + n.data
	if w.mongodb != "" {
		if n.database, err = newDatabase(ctx, w.mongodb); err != nil {
			return n, err
		}
		store = n.database.address
	}
	join := ""
	for i := range w.count {
		address, err := freeAddress()
		if err != nil {
			return n, err
		}
		args := []string{"serve", "--http", address, "--store", store, "--buckets", fmt.Sprint(w.buckets),
			"--node-id", fmt.Sprintf("node-%d", i+1)}
		if n.database != nil {
			gossip, err := freeAddress()
			if err != nil {
				return n, err
			}
			args = append(args, "--gossip", gossip)
			if join != "" {
				args = append(args, "--join", join)
			} else {
				join = gossip
			}
		}
		s := &server{binary: w.binary, address: address, log: filepath.Join(dir, fmt.Sprintf("log-%d", i+1)),
			root: w.root, command: command{args: args, send: readyRequest, want: "200 OK"}}
		n.servers = append(n.servers, s) // before its start: one that is not ready in time has to be stopped
		if err := s.start(ctx); err != nil {
			return n, err
		}
		c, err := client.New(client.Config{Servers: []string{address}})
		if err != nil {
			return n, err
		}
		n.clients = append(n.clients, c)
	}
	return n, n.settle(ctx)
}

// settle waits until each node owns buckets, and every bucket has an owner.
func (n *nodes) settle(ctx context.Context) error {
	if n.database == nil {
		return nil
	}
	var owners map[string]int
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); {
		c, err := n.clients[0].Cluster(ctx)
		if err != nil {
			return err
		}
		owners = map[string]int{}
		for _, b := range c.Buckets {
			owners[b.Owner]++
		}
		if len(owners) == len(n.servers) && owners[""] == 0 {
			return nil
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("after %v the buckets are divided like this: %v: is MongoDB too slow?", startTimeout, owners)
}

// stop stops all nodes and removes what they stored.
func (n *nodes) stop() error {
	for _, c := range n.clients {
		c.Close()
	}
	for _, s := range n.servers {
		s.stop()
	}
	if n.data != "" {
		_ = os.RemoveAll(filepath.Dir(n.data)) // what is left is in a temporary folder
	}
	if n.database != nil {
		return n.database.drop()
	}
	return nil
}

func (n *nodes) next() *client.Client { return n.clients[n.turn.Add(1)%uint64(len(n.clients))] }

func (n *nodes) message(m item) client.Message {
	made := postdateMessage(m)
	made.Channel = fmt.Sprintf("inbox:due%d", m.id%uint64(n.inboxes))
	return made
}

func (n *nodes) schedule(ctx context.Context, m item) error {
	_, err := n.next().Schedule(ctx, n.message(m))
	return err
}

func (n *nodes) scheduleAll(ctx context.Context, items []item) error {
	messages := make([]client.Message, len(items))
	for i, m := range items {
		messages[i] = n.message(m)
	}
	return scheduleMessages(ctx, n.next(), messages)
}

// consume follows each inbox from its beginning. A later call only says who gets the deliveries.
func (n *nodes) consume(ctx context.Context, handle func([]byte)) error {
	if n.handle.Swap(&handle) != nil {
		return nil
	}
	for i := range n.inboxes {
		go follow(ctx, n.clients[i%len(n.clients)], fmt.Sprintf("due%d", i), func(payload []byte) {
			(*n.handle.Load())(payload)
		})
	}
	return nil
}

func (n *nodes) cancel(ctx context.Context, id uint64) error {
	return n.next().Cancel(ctx, postdateID(id))
}

// The nodes are started and stopped by startNodes and stop.
func (n *nodes) command(string, string) (command, error) { return command{}, errors.ErrUnsupported }
func (n *nodes) connect(context.Context, string) error   { return nil }
func (n *nodes) close()                                  {}

// randomName is a name that nothing else has.
func randomName(prefix string) string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails
	return prefix + hex.EncodeToString(b)
}
