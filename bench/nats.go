package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsProgram is a tool of this module: go.mod has its version.
var natsProgram = program{name: "nats-server", source: "github.com/nats-io/nats-server/v2",
	versionArgs: []string{"--version"}}

const natsSettings = "JetStream message schedules, one replica, file store, work queue; " +
	"consumer with the default of 1,000 unacknowledged; a batch is asynchronous publishes"

var natsEntries = []entry{
	{"nats", "within 2 minutes", "sync_interval 2m (default); " + natsSettings,
		natsProgram, func() peer { return &natsPeer{sync: "2m"} }},
	{"nats-sync", beforeAnswer, "sync_interval always; " + natsSettings,
		natsProgram, func() peer { return &natsPeer{sync: "always"} }},
}

// natsPeer uses the message schedules of JetStream: a message to sched.ID, with a time in its
// header, is published to due at that time.
type natsPeer struct {
	sync     string
	conn     *nats.Conn
	js       jetstream.JetStream
	stream   jetstream.Stream
	consumer jetstream.ConsumeContext
}

func (p *natsPeer) command(address, dir string) (command, error) {
	config := filepath.Join(dir, "nats.conf")
	text := fmt.Sprintf("listen: %q\njetstream { store_dir: %q, sync_interval: %s }\n",
		address, filepath.Join(dir, "jetstream"), p.sync)
	return command{args: []string{"-c", config}, want: "INFO"}, os.WriteFile(config, []byte(text), 0o600)
}

func (p *natsPeer) connect(ctx context.Context, address string) (err error) {
	p.conn, err = nats.Connect("nats://"+address, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	p.js, err = jetstream.New(p.conn, jetstream.WithPublishAsyncMaxPending(2*batchCallers*batchItems))
	if err != nil {
		return err
	}
	p.stream, err = p.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "Q", Subjects: []string{"sched.*", "due"}, Storage: jetstream.FileStorage,
		Retention: jetstream.WorkQueuePolicy, AllowMsgSchedules: true,
	})
	return err
}

func natsSubject(id uint64) string { return fmt.Sprintf("sched.%d", id) }

// message writes the header itself: the client's WithScheduleAt cuts the time to whole seconds,
// which the server does not need.
func (p *natsPeer) message(m item) *nats.Msg {
	return &nats.Msg{
		Subject: natsSubject(m.id),
		Header: nats.Header{
			"Nats-Schedule":        {"@at " + m.due.UTC().Format(time.RFC3339Nano)},
			"Nats-Schedule-Target": {"due"},
		},
		Data: m.payload,
	}
}

func (p *natsPeer) schedule(ctx context.Context, m item) error {
	_, err := p.js.PublishMsg(ctx, p.message(m))
	return err
}

func (p *natsPeer) scheduleAll(ctx context.Context, items []item) error {
	acks := make([]jetstream.PubAckFuture, len(items))
	for i, m := range items {
		var err error
		if acks[i], err = p.js.PublishMsgAsync(p.message(m)); err != nil {
			return err
		}
	}
	for _, a := range acks {
		select {
		case <-a.Ok():
		case err := <-a.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (p *natsPeer) cancel(ctx context.Context, id uint64) error {
	return p.stream.Purge(ctx, jetstream.WithPurgeSubject(natsSubject(id)))
}

func (p *natsPeer) consume(ctx context.Context, handle func([]byte)) error {
	c, err := p.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "worker", FilterSubject: "due", AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		return err
	}
	p.consumer, err = c.Consume(func(m jetstream.Msg) {
		handle(m.Data())
		_ = m.Ack() // if it fails, the message comes again, and is counted
	})
	return err
}

func (p *natsPeer) close() {
	if p.consumer != nil {
		p.consumer.Stop()
	}
	if p.conn != nil {
		p.conn.Close()
	}
}
