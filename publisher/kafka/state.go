package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/postdate/postdate/publisher"
)

// How often to check whether the cluster answers: while it does, and while it does not.
const (
	watchTime = 10 * time.Second
	seekTime  = time.Second
)

// State says whether the cluster answers, and if not, why.
func (p *Publisher) State() publisher.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *Publisher) enterPhase(phase publisher.Phase, reason string) {
	if p.state.Phase == phase || p.state.Phase == publisher.Closed {
		p.state.Reason = reason
		return
	}
	p.state = publisher.State{Phase: phase, Reason: reason, Since: time.Now()}
	switch phase {
	case publisher.Connected:
		p.config.Log.Info("connected to Kafka", "seeds", p.seeds)
	case publisher.Lost:
		p.config.Log.Warn(reason, "seeds", p.seeds)
	}
}

// reached notes whether a request got an answer.
func (p *Publisher) reached(err error) {
	switch {
	case err == nil:
		p.enterPhase(publisher.Connected, "")
	case p.life.Err() != nil:
		p.enterPhase(publisher.Closed, "the publisher is closed")
	case errors.Is(err, context.Canceled):
	default:
		p.enterPhase(publisher.Lost, "Kafka cannot be reached: "+err.Error())
	}
}

// watch pings the cluster until the publisher is closed, so that State is correct while nothing
// is published.
func (p *Publisher) watch() {
	defer close(p.stopped)
	for {
		ctx, cancel := context.WithTimeout(p.life, p.config.PublishTimeout)
		err := p.client.Ping(ctx)
		cancel()
		p.mu.Lock()
		p.reached(err)
		wait := watchTime
		if p.state.Phase != publisher.Connected {
			wait = seekTime
		}
		p.mu.Unlock()
		select {
		case <-p.life.Done():
			p.mu.Lock()
			p.enterPhase(publisher.Closed, "the publisher is closed")
			p.mu.Unlock()
			return
		case <-time.After(wait):
		}
	}
}
