package poller

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/postdate/postdate"
)

// View is what the loop was doing at its last step.
type View struct {
	Overdue map[int]postdate.Time // per bucket: the earliest due message in hand that is not settled
	Hand    int                   // messages in memory
	At      postdate.Now
}

// viewEvery bounds how often the view is made: it is for people.
const viewEvery = 100 * time.Millisecond

func (l *Loop) setView(now postdate.Now) {
	if now.Mono-l.view.At.Mono < viewEvery && l.view.Overdue != nil {
		return
	}
	v := View{Overdue: map[int]postdate.Time{}, Hand: l.m.hand, At: now}
	down := 0
	for _, b := range l.m.order {
		if first := b.settledUpTo() + 1; first <= now.Wall && !b.idle() {
			v.Overdue[b.hold.Bucket] = first
		}
	}
	for _, c := range l.m.channels {
		if c.down {
			down++
		}
	}
	l.viewMu.Lock()
	l.view = v
	l.viewMu.Unlock()
	l.metrics.observe(v, down)
}

// View is what the loop was doing a moment ago.
func (l *Loop) View() View {
	l.viewMu.Lock()
	defer l.viewMu.Unlock()
	return l.view
}

// ChannelView is what the loop knows of one channel.
type ChannelView struct {
	Channel  postdate.Channel
	Down     bool // takes nothing at present
	Paused   bool // by an operator
	InHand   int  // messages in memory
	InFlight int  // of these, with the broker
	ParkedIn int  // buckets of this node that may have messages parked for it
	Reason   string
}

// Channels lists the channels of which the loop knows something, by name.
func (l *Loop) Channels(ctx context.Context) ([]ChannelView, error) {
	answer := make(chan []ChannelView, 1)
	select {
	case l.asks <- answer:
		return <-answer, nil
	case <-l.stop:
		return nil, postdate.E(postdate.KindUnavailable, "the node is stopping")
	case <-ctx.Done():
		return nil, postdate.E(postdate.KindUnavailable, "the node did not answer in time: %w", ctx.Err())
	}
}

func (m *Machine) channelViews() []ChannelView {
	all := make([]ChannelView, 0, len(m.channels))
	for _, c := range m.channels {
		all = append(all, ChannelView{
			Channel: c.name, Down: c.down, Paused: c.paused(), InHand: c.hand, InFlight: c.inFlight,
			ParkedIn: len(c.parkedIn), Reason: c.lastError,
		})
	}
	slices.SortFunc(all, func(a, b ChannelView) int { return cmp.Compare(a.Channel, b.Channel) })
	return all
}
