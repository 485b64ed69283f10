package rabbitmq

import (
	"math"
	"time"

	"github.com/postdate/postdate/publisher"
)

const (
	burstMax = 128 // messages that go out in one write

	// lanesIdleMax is how many exchanges may keep an unused channel. If there are more lanes,
	// those that were idle for laneIdle lose theirs.
	lanesIdleMax = 64
	laneIdle     = time.Minute
)

// write writes what waits to the connection, until the session is over.
func (p *Publisher) write(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !s.over.Load() {
		worked := false
		for _, l := range p.lanes {
			if p.state.Phase != publisher.Connected {
				break // blocked
			}
			p.mend(l)
			burst, alone := l.take(burstMax, time.Now())
			if len(burst) == 0 {
				continue
			}
			worked = true
			p.send(s, l, burst, alone)
		}
		if !worked {
			p.wake.Wait()
		}
	}
}

// send writes one burst to a lane and records the results. The lock is held when it is called
// and when it returns, but not while it writes.
func (p *Publisher) send(s *session, l *lane, burst []*item, alone bool) {
	on := l.link
	p.mu.Unlock()
	var answers []confirm
	var err error
	if on == nil {
		on, err = s.open(lanePerWindow * p.config.Window)
	}
	if err == nil {
		answers, err = s.writeBurst(on, l.exchange, burst, alone)
	}
	p.mu.Lock()

	now := time.Now()
	if err == nil && l.link == nil {
		l.link = on
	}
	for i, answer := range answers {
		l.wrote(burst[i], on, answer, now)
	}
	for i := len(burst) - 1; i >= len(answers); i-- {
		l.putBack(burst[i])
	}
	if l.alone != nil {
		switch {
		case len(answers) == 0:
		case err == nil:
			l.passed()
		default:
			on.takeReturns(l.returned)
			l.broke(on, on.why(), now)
		}
		l.alone = nil
	}
	if len(answers) == 0 && err != nil && !s.conn.IsClosed() {
		// No channel can be opened, for example because too many are open.
		l.finishQueued(publisher.Result{Outcome: publisher.Down, Reason: "no AMQP channel: " + words(err)})
	}
	if s.over.Load() {
		l.finishQueued(publisher.Result{Outcome: publisher.Down, Reason: p.state.Reason})
	}
}

// writeBurst writes a burst, and returns one answer to wait for per item written. If an item
// goes alone and err is nil, the broker has processed it.
func (s *session) writeBurst(on *link, exchange string, burst []*item, alone bool) (answers []confirm, err error) {
	answers = make([]confirm, 0, len(burst))
	hold := corkBytesMax
	if alone { // in one write with the confirm.select that follows: see sync
		hold = math.MaxInt
	}
	s.socket.cork(hold)
	for _, it := range burst {
		answer, written := on.publish(exchange, it.name.key, it.msg)
		if !written {
			break
		}
		answers = append(answers, answer)
		if answer == (lost{}) {
			s.socket.Close() // part of the message may have been sent: nothing can follow it
			break
		}
	}
	if alone && len(answers) > 0 {
		s.socket.cork(0)
		err = on.sync()
	}
	s.socket.uncork()
	return answers, err
}

// mend removes a lane's link once it is closed, so that the next burst gets a new one.
func (p *Publisher) mend(l *lane) {
	if on := l.link; on != nil && on.IsClosed() {
		on.takeReturns(l.returned)
		l.broke(on, on.why(), time.Now())
	}
}

// tidy drops unused lanes, and returns their channels to be closed.
func (p *Publisher) tidy(now time.Time) (unused []*link) {
	for exchange, l := range p.lanes {
		if !l.idle() {
			l.idleSince = time.Time{}
			continue
		}
		if l.idleSince.IsZero() {
			l.idleSince = now
		}
		if len(p.lanes) > lanesIdleMax && now.Sub(l.idleSince) > laneIdle {
			delete(p.lanes, exchange)
			if l.link != nil {
				unused = append(unused, l.link)
			}
		}
	}
	return unused
}
