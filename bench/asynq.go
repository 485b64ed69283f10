package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/hibiken/asynq"
)

var redisProgram = program{name: "redis-server", apt: "redis-server", versionArgs: []string{"--version"}}

const asynqSettings = "no RDB snapshots; asynq with 100 workers, DelayedTaskCheckInterval 100ms (default 5s) and " +
	"TaskCheckInterval 10ms (default 1s); due times rounded up to whole seconds, which asynq cuts to"

var asynqEntries = []entry{
	{"asynq", "once a second", "appendfsync everysec; " + asynqSettings,
		redisProgram, func() peer { return &asynqPeer{fsync: "everysec"} }},
	{"asynq-sync", beforeAnswer, "appendfsync always; " + asynqSettings,
		redisProgram, func() peer { return &asynqPeer{fsync: "always"} }},
}

// asynqPeer uses asynq, a library for tasks in Redis.
type asynqPeer struct {
	fsync     string
	redis     asynq.RedisClientOpt
	client    *asynq.Client
	inspector *asynq.Inspector
	server    *asynq.Server // asynq's name for what consumes
}

func (p *asynqPeer) command(address, dir string) (command, error) {
	host, port, err := net.SplitHostPort(address)
	return command{
		args: []string{"--bind", host, "--port", port, "--dir", dir,
			"--appendonly", "yes", "--appendfsync", p.fsync, "--save", ""},
		send: "PING\r\n", want: "+PONG", // it answers something else while it loads
	}, err
}

func (p *asynqPeer) connect(_ context.Context, address string) error {
	p.redis = asynq.RedisClientOpt{Addr: address, PoolSize: callers}
	p.client, p.inspector = asynq.NewClient(p.redis), asynq.NewInspector(p.redis)
	return nil
}

func asynqID(id uint64) string { return fmt.Sprintf("m%d", id) }

func (p *asynqPeer) schedule(ctx context.Context, m item) error {
	due := roundUp(m.due)
	_, err := p.client.EnqueueContext(ctx, asynq.NewTask("m", m.payload), asynq.ProcessAt(due),
		asynq.TaskID(asynqID(m.id)))
	return err
}

// roundUp returns the next whole second, for peers that would otherwise be early.
func roundUp(t time.Time) time.Time { return t.Add(time.Second - 1).Truncate(time.Second) }

func (p *asynqPeer) cancel(_ context.Context, id uint64) error {
	return p.inspector.DeleteTask("default", asynqID(id))
}

func (p *asynqPeer) consume(_ context.Context, handle func([]byte)) error {
	s := asynq.NewServer(p.redis, asynq.Config{
		Concurrency: 100, DelayedTaskCheckInterval: 100 * time.Millisecond, TaskCheckInterval: 10 * time.Millisecond,
		LogLevel: asynq.FatalLevel,
	})
	if err := s.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		handle(t.Payload())
		return nil
	})); err != nil {
		return err
	}
	p.server = s
	return nil
}

func (p *asynqPeer) close() {
	if p.server != nil {
		p.server.Shutdown()
	}
	if p.client != nil {
		p.client.Close()
		p.inspector.Close()
	}
}
