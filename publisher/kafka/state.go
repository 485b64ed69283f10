package kafka

import (
	"context"
	"errors"
	"time"
)

// How often to check whether the cluster answers: while it does, and while it does not.
const (
	watchTime = 10 * time.Second
	seekTime  = time.Second
)

// Phase is the state of a publisher's connection to its cluster.
type Phase uint8

// The phases.
const (
	Connecting Phase = iota + 1 // for the first time
	Connected
	Lost // the cluster does not answer
	Closed
)

var phaseNames = [...]string{Connecting: "connecting", Connected: "connected", Lost: "down", Closed: "closed"}

func (p Phase) String() string {
	if int(p) >= len(phaseNames) || p == 0 {
		return "invalid"
	}
	return phaseNames[p]
}

// State is a publisher's phase, for health and metrics.
type State struct {
	Phase  Phase
	Reason string // for all but Connected: a sentence without secrets
	Since  time.Time
}

// State says whether the cluster answers, and if not, why.
func (p *Publisher) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *Publisher) enterPhase(phase Phase, reason string) {
	if p.state.Phase == phase || p.state.Phase == Closed {
		p.state.Reason = reason
		return
	}
	p.state = State{Phase: phase, Reason: reason, Since: time.Now()}
	switch phase {
	case Connected:
		p.config.Log.Info("connected to Kafka", "seeds", p.seeds)
	case Lost:
		p.config.Log.Warn(reason)
	}
}

// reached notes whether a request got an answer.
func (p *Publisher) reached(err error) {
	switch {
	case err == nil:
		p.enterPhase(Connected, "")
	case p.life.Err() != nil:
		p.enterPhase(Closed, "the publisher is closed")
	case errors.Is(err, context.Canceled):
	default:
		p.enterPhase(Lost, "Kafka at "+p.seeds+" cannot be reached: "+err.Error())
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
		if p.state.Phase != Connected {
			wait = seekTime
		}
		p.mu.Unlock()
		select {
		case <-p.life.Done():
			p.mu.Lock()
			p.enterPhase(Closed, "the publisher is closed")
			p.mu.Unlock()
			return
		case <-time.After(wait):
		}
	}
}
