package rabbitmq

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate/internal/certs"
	"github.com/postdate/postdate/publisher"
)

// The wait before a reconnection doubles from the first to the last and is shortened at random
// by up to a half. After a connection that held for steadyTime it starts again at the first.
const (
	backoffFirst = 100 * time.Millisecond
	backoffLast  = 10 * time.Second
	steadyTime   = 5 * time.Second

	sweepTime = 50 * time.Millisecond // between sweeps
	tidyTime  = 10 * time.Second
)

// State says whether the publisher is connected, blocked or down, and why.
func (p *Publisher) State() publisher.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// enterPhase changes the state. In any phase but Connected, whatever is not written yet is
// Down. The lock is held.
func (p *Publisher) enterPhase(phase publisher.Phase, reason string) {
	p.state = publisher.State{Phase: phase, Reason: reason, Since: time.Now()}
	if phase != publisher.Connected {
		for _, l := range p.lanes {
			l.finishQueued(publisher.Result{Outcome: publisher.Down, Reason: reason})
		}
	}
	p.wake.Broadcast()
}

// keepConnected connects, and reconnects, until ctx ends.
func (p *Publisher) keepConnected(ctx context.Context) {
	defer close(p.stopped)
	for attempt := 0; ; attempt++ {
		s, err := dial(ctx, p.config)
		if err == nil {
			began := time.Now()
			p.serve(ctx, s)
			if time.Since(began) >= steadyTime {
				attempt = 0
			}
		} else if ctx.Err() == nil {
			reason := "RabbitMQ cannot be reached: " + words(err)
			if p.secure {
				reason += certs.FirstAdvice(err, "--rabbitmq-ca", "--rabbitmq-cert and --rabbitmq-key")
			}
			p.down(reason, attempt)
		}
		select {
		case <-time.After(backoff(attempt, rand.Float64())):
		case <-ctx.Done():
			p.mu.Lock()
			p.enterPhase(publisher.Closed, "the publisher is closed")
			p.mu.Unlock()
			return
		}
	}
}

// backoff returns the wait after that many failed attempts; jitter is in [0, 1).
func backoff(attempt int, jitter float64) time.Duration {
	d := min(backoffFirst<<min(attempt, 20), backoffLast)
	return d - time.Duration(jitter*float64(d)/2)
}

func (p *Publisher) down(reason string, attempt int) {
	if attempt == 0 {
		p.config.Log.Warn(reason, "address", p.address)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enterPhase(publisher.Lost, reason)
}

// serve runs one session to its end.
func (p *Publisher) serve(ctx context.Context, s *session) {
	p.mu.Lock()
	p.session = s
	p.frameBytesMax.Store(int64(max(0, s.conn.Config.FrameSize)))
	for _, l := range p.lanes {
		l.link, l.proven = nil, false
	}
	p.enterPhase(publisher.Connected, "")
	p.mu.Unlock()
	p.metrics.connects.Inc()
	p.config.Log.Info("connected to RabbitMQ", "address", p.address)

	wrote := make(chan struct{})
	go func() { p.write(s); close(wrote) }()
	reason := p.watch(ctx, s)
	p.mu.Lock()
	s.over.Store(true)
	p.enterPhase(publisher.Lost, reason)
	p.mu.Unlock()
	if ctx.Err() == nil {
		p.config.Log.Warn(reason, "address", p.address)
	}
	// The orderly close waits for a write that is under way. If that takes too long, hanging up
	// ends the write.
	hangUp := time.AfterFunc(closeTimeout, func() { s.socket.Conn.Close() })
	s.close(time.Now().Add(closeTimeout))
	<-wrote
	hangUp.Stop()
	p.mu.Lock()
	p.session = nil
	p.mu.Unlock()
}

// watch waits until the session ends, and returns the reason.
func (p *Publisher) watch(ctx context.Context, s *session) string {
	ticks := time.NewTicker(sweepTime)
	defer ticks.Stop()
	tidied := time.Now()
	for {
		select {
		case e := <-s.closes:
			return "lost the connection to RabbitMQ" + lostWords(e)
		case b, ok := <-s.blocks:
			if !ok {
				s.blocks = nil // closed with the connection: the reason will follow
				continue
			}
			p.block(b)
		case now := <-ticks.C:
			var unused []*link
			p.mu.Lock()
			p.sweep()
			p.wake.Signal() // it may be time for a message that waits to go alone
			if now.Sub(tidied) > tidyTime {
				tidied, unused = now, p.tidy(now)
			}
			p.mu.Unlock()
			for _, l := range unused {
				go l.Close()
			}
		case <-ctx.Done():
			return "the publisher is closed"
		}
	}
}

// hangUp cuts the connection.
func (p *Publisher) hangUp() {
	p.mu.Lock()
	s := p.session
	p.mu.Unlock()
	if s != nil {
		s.socket.Conn.Close()
	}
}

func lostWords(e *amqp.Error) string {
	if e == nil {
		return ""
	}
	return ": " + words(e)
}

func (p *Publisher) block(b amqp.Blocking) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.Active {
		reason := "RabbitMQ blocks publishers: " + b.Reason
		p.config.Log.Warn(reason, "address", p.address)
		p.enterPhase(publisher.Blocked, reason)
		return
	}
	p.config.Log.Info("RabbitMQ takes messages again", "address", p.address)
	p.enterPhase(publisher.Connected, "")
}

func hostPort(uri amqp.URI) string { return net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port)) }
