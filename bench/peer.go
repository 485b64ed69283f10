package main

import (
	"context"
	"slices"
	"time"
)

// item is one message. Its payload begins with its id, and comes back to the recorder as it was.
type item struct {
	id      uint64
	due     time.Time
	payload []byte
}

// peer is one system that is measured, for one run. It measures nothing itself. Its calls of the
// server are made by many goroutines at a time, and connect again by themselves after a crash.
type peer interface {
	// command says how to start the server. It may write files into dir, which holds the data.
	command(address, dir string) (command, error)

	// connect is called once the server answers. It makes the queue, if that is to be made.
	connect(ctx context.Context, address string) error

	// schedule returns nil only if the server has acknowledged the message.
	schedule(ctx context.Context, m item) error

	// cancel cancels a message that schedule has scheduled.
	cancel(ctx context.Context, id uint64) error

	// consume starts consumers, which run until ctx ends. They call handle with the payload of
	// each delivery, and acknowledge it after that.
	consume(ctx context.Context, handle func(payload []byte)) error

	// close closes the connections.
	close()
}

// batcher is a peer with a call that schedules many messages.
type batcher interface {
	scheduleAll(ctx context.Context, messages []item) error
}

// batchCanceller is a peer with a call that cancels many messages.
type batchCanceller interface {
	cancelAll(ctx context.Context, ids []uint64) error
}

// command starts a server.
type command struct {
	args       []string
	send, want string // the server is ready if it answers so to this, on a new connection
}

// entry is a peer with its settings.
type entry struct {
	name     string
	synced   string // when what is acknowledged is synced to the disk
	settings string
	program  program
	make     func() peer
}

const beforeAnswer = "before each acknowledgement"

// entries are all peers.
var entries = slices.Concat(postdateEntries, floorEntries, natsEntries, beanstalkdEntries, asynqEntries)
