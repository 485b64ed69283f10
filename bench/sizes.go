package main

import (
	"context"
	crypto "crypto/rand"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate/client"
)

// sizes is the flags of the command sizes.
type sizes struct {
	n, payload int
	mongodb    string
	dir        string
}

// kind is a kind of message whose size in MongoDB is measured.
type kind struct {
	name   string
	change func(*client.Message) // what it has beside a payload
	settle func(ctx context.Context, n *nodes, ids []string) error
}

var kinds = []kind{
	{"pending", func(*client.Message) {}, nil},
	{"pending, three labels of 12 bytes", func(m *client.Message) {
		m.Labels = []string{"region:" + m.ScheduleID[:5], "custom:" + m.ScheduleID[:5], "orders:" + m.ScheduleID[:5]}
	}, nil},
	{"pending, three headers of 12 and 24 bytes", func(m *client.Message) {
		m.Headers = map[string]string{"x-header-001": m.ScheduleID[:24], "x-header-002": m.ScheduleID[1:25],
			"x-header-003": m.ScheduleID[2:26]}
	}, nil},
	{"series, hourly", func(m *client.Message) {
		m.ExecutionTime = time.Time{}
		m.Recurrence = &client.Recurrence{Cron: "0 * * * *", Timezone: "Europe/Berlin",
			Start: time.Now().Add(25 * time.Hour)}
	}, nil},
	{"cancelled", func(*client.Message) {}, cancelIDs},
	{"delivered to an inbox", func(m *client.Message) { m.ExecutionTime = time.Now() }, awaitDelivered},
}

// sizesCommand measures what messages take in MongoDB, and prints it as a table in Markdown.
func sizesCommand(ctx context.Context, args []string) error {
	clearEnvironment()
	var s sizes
	f := flag.NewFlagSet("sizes", flag.ExitOnError)
	f.IntVar(&s.n, "n", 100_000, "messages of each kind")
	f.IntVar(&s.payload, "payload", payloadBytes, "bytes of one payload")
	f.StringVar(&s.mongodb, "mongodb", given["POSTDATE_MONGODB"],
		"address of a replica set without a database that nobody else uses meanwhile (or POSTDATE_MONGODB)")
	f.StringVar(&s.dir, "dir", os.TempDir(), "the node keeps its log in a temporary folder in this one")
	_ = f.Parse(args) // it exits with the error
	if s.n < 1 || s.payload < 20 || f.NArg() > 0 {
		return errors.New("-n is at least 1, -payload at least 20, and there are no arguments")
	}
	if s.mongodb == "" {
		return errors.New("name a replica set in -mongodb, like mongodb://127.0.0.1:27017/?replicaSet=rs0")
	}
	root, err := os.MkdirTemp(s.dir, "postdate-sizes-")
	if err != nil {
		return fmt.Errorf("cannot make a temporary folder (-dir names another place): %w", err)
	}
	defer os.RemoveAll(root)
	binary, version, err := postdateProgram.prepare(ctx, root)
	if err != nil {
		return err
	}
	b := &strings.Builder{}
	for i, k := range kinds {
		fmt.Fprintln(os.Stderr, k.name)
		is, err := s.measure(ctx, nodesWish{binary: binary, root: root, count: 1, buckets: 64, inboxes: 1,
			mongodb: s.mongodb}, k)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		if i == 0 {
			fmt.Fprintf(b, "%s, MongoDB %s, %d messages of each kind, payloads of %d bytes; "+
				"all in bytes per message.\n\n", version, is.server, s.n, s.payload)
			row(b, sizeColumns...)
			row(b, slices.Repeat([]string{"---"}, len(sizeColumns))...)
		}
		row(b, is.cells(k.name)...)
	}
	_, err = os.Stdout.WriteString(b.String())
	return err
}

// measure measures one kind in a database of its own.
func (s sizes) measure(ctx context.Context, w nodesWish, k kind) (is stored, err error) {
	n, err := startNodes(ctx, w)
	if err != nil {
		return is, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	from, err := n.database.oplogEnd(ctx)
	if err != nil {
		return is, err
	}
	ids := make([]string, s.n)
	for i := range ids {
		ids[i] = randomID()
	}
	batches := (s.n + batchItems - 1) / batchItems
	err = inParallel(ctx, batchCallers, batches, func(ctx context.Context, batch int) error {
		var messages []client.Message
		for i := batch * batchItems; i < min(s.n, (batch+1)*batchItems); i++ {
			m := client.Message{ScheduleID: ids[i], Channel: "inbox:due", ContentType: "text/plain",
				ExecutionTime: time.Now().Add(24*time.Hour + rand.N(24*time.Hour)),
				Payload:       payload(uint64(i), s.payload)}
			k.change(&m)
			messages = append(messages, m)
		}
		return scheduleMessages(ctx, n.clients[0], messages)
	})
	if err != nil {
		return is, err
	}
	if k.settle != nil {
		if err := k.settle(ctx, n, ids); err != nil {
			return is, err
		}
	}
	return n.database.stored(ctx, s.n, from)
}

// randomID returns an id in the form of a UUID.
func randomID() string {
	b := make([]byte, 16)
	_, _ = crypto.Read(b) // never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func cancelIDs(ctx context.Context, n *nodes, ids []string) error {
	for some := range slices.Chunk(ids, batchItems) {
		results, err := n.clients[0].CancelAll(ctx, some)
		if err != nil {
			return err
		}
		for _, r := range results {
			if r.Problem != nil {
				return r.Problem
			}
		}
	}
	return nil
}

func awaitDelivered(ctx context.Context, n *nodes, ids []string) error {
	settled := bson.D{{Key: "settledAt", Value: bson.D{{Key: "$exists", Value: true}}}}
	for {
		count, err := n.database.Collection("messages").CountDocuments(ctx, settled)
		if err != nil || count == int64(len(ids)) {
			return err
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// stored is what n messages take.
type stored struct {
	n         int
	server    string
	documents collection // of messages
	inboxes   collection
	oplog     int64
}

// collection is the sizes of one collection, in bytes.
type collection struct {
	data       int64 // not compressed
	files      int64 // of its documents, without what is free
	free       int64 // in these files and those of the indexes: later messages take it
	cache      int64 // of its documents
	indexCache int64
	indexes    map[string]int64 // files, without what is free
}

// The indexes of messages that a table has a column of. The others go under "other".
var sizeIndexes = []string{"_id_", "due", "list", "label", "settled"}

var sizeColumns = slices.Concat([]string{"kind", "document", "on disk"}, sizeIndexes,
	[]string{"other indexes", "inbox", "disk in all", "free besides", "cache, documents", "cache, indexes", "oplog"})

// cells returns a line of the table.
func (s stored) cells(name string) []string {
	each := func(bytes int64) string { return fmt.Sprintf("%.0f", float64(bytes)/float64(s.n)) }
	d := s.documents
	cells := []string{name, each(d.data), each(d.files)}
	rest := maps.Clone(d.indexes)
	for _, index := range sizeIndexes {
		cells = append(cells, each(d.indexes[index]))
		delete(rest, index)
	}
	inbox := s.inboxes.files + sum(s.inboxes.indexes)
	return append(cells, each(sum(rest)), each(inbox), each(d.files+sum(d.indexes)+inbox), each(d.free+s.inboxes.free),
		each(d.cache+s.inboxes.cache), each(d.indexCache+s.inboxes.indexCache), each(s.oplog))
}

func sum(sizes map[string]int64) (all int64) {
	for _, size := range sizes {
		all += size
	}
	return all
}

// stored reads the sizes of all that the nodes wrote since a place of the oplog.
func (d *database) stored(ctx context.Context, n int, from bson.Timestamp) (s stored, err error) {
	s.n = n
	if err := d.checkpoint(ctx); err != nil {
		return s, err
	}
	if s.documents, err = d.collection(ctx, "messages"); err != nil {
		return s, err
	}
	if s.inboxes, err = d.collection(ctx, "inboxes"); err != nil {
		return s, err
	}
	if s.oplog, err = d.oplogSince(ctx, from); err != nil {
		return s, err
	}
	var info struct {
		Version string `bson:"version"`
	}
	err = d.admin(ctx, "buildInfo", &info)
	s.server = info.Version
	return s, err
}
