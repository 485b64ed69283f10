package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

var beanstalkdProgram = program{name: "beanstalkd", apt: "beanstalkd", versionArgs: []string{"-v"}}

const beanstalkdSettings = "binlog; 32 consumers; delays rounded up to whole seconds, which it counts in"

var beanstalkdEntries = []entry{
	{"beanstalkd", "within 50 ms", "-f 50 (default); " + beanstalkdSettings,
		beanstalkdProgram, func() peer { return &beanstalkdPeer{fsync: "50"} }},
	{"beanstalkd-sync", beforeAnswer, "-f 0; " + beanstalkdSettings,
		beanstalkdProgram, func() peer { return &beanstalkdPeer{fsync: "0"} }},
}

// beanstalkdPeer uses beanstalkd, which names jobs by numbers of its own.
type beanstalkdPeer struct {
	fsync   string // ms
	address string
	jobs    sync.Map             // message id -> job's number
	idle    chan *beanstalk.Conn // one for each caller; nil: not connected
}

func (p *beanstalkdPeer) command(address, dir string) (command, error) {
	host, port, err := net.SplitHostPort(address)
	return command{args: []string{"-l", host, "-p", port, "-b", dir, "-f", p.fsync}, send: "stats\r\n", want: "OK"}, err
}

func (p *beanstalkdPeer) connect(_ context.Context, address string) error {
	p.address, p.idle = address, make(chan *beanstalk.Conn, callers)
	for range callers {
		p.idle <- nil
	}
	return nil
}

// with calls f with a connection, and closes it after an error.
func (p *beanstalkdPeer) with(f func(*beanstalk.Conn) error) (err error) {
	c := <-p.idle
	defer func() { p.idle <- c }()
	if c == nil {
		if c, err = beanstalk.Dial("tcp", p.address); err != nil {
			c = nil
			return err
		}
	}
	if err := f(c); err != nil {
		c.Close()
		c = nil
		return err
	}
	return nil
}

func (p *beanstalkdPeer) schedule(_ context.Context, m item) error {
	return p.with(func(c *beanstalk.Conn) error {
		delay := max(0, time.Until(m.due)+time.Second-1) // the client cuts it to whole seconds
		job, err := c.Put(m.payload, 1, delay, time.Minute)
		if err == nil {
			p.jobs.Store(m.id, job)
		}
		return err
	})
}

func (p *beanstalkdPeer) cancel(_ context.Context, id uint64) error {
	job, ok := p.jobs.Load(id)
	if !ok {
		return fmt.Errorf("message %d was not scheduled", id)
	}
	return p.with(func(c *beanstalk.Conn) error { return c.Delete(job.(uint64)) })
}

func (p *beanstalkdPeer) consume(ctx context.Context, handle func([]byte)) error {
	for range 32 {
		go func() {
			for ctx.Err() == nil {
				if err := p.reserve(ctx, handle); err != nil {
					_ = sleep(ctx, 20*time.Millisecond) // the loop sees that ctx ended
				}
			}
		}()
	}
	return nil
}

// reserve takes jobs over one connection until that fails.
func (p *beanstalkdPeer) reserve(ctx context.Context, handle func([]byte)) error {
	c, err := beanstalk.Dial("tcp", p.address)
	if err != nil {
		return err
	}
	defer c.Close()
	for ctx.Err() == nil {
		job, body, err := c.Reserve(time.Second)
		if errors.Is(err, beanstalk.ErrTimeout) {
			continue
		}
		if err != nil {
			return err
		}
		handle(body)
		if err := c.Delete(job); err != nil {
			return err
		}
	}
	return nil
}

func (p *beanstalkdPeer) close() {
	for range cap(p.idle) {
		if c := <-p.idle; c != nil {
			c.Close()
		}
	}
}
