package node

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/internal/stats"
)

// What a node asks others by gossip: a byte, and for figures the tenant's name; none asks for all tenants.
const (
	questionFigures = 'f'
	questionSelf    = 's'
)

const (
	// answerMax is how long a node waits for the others' answers.
	answerMax = 500 * time.Millisecond

	// freshFor is for how long what was read from the metrics is shown again: many who look cost no more than one.
	freshFor = 500 * time.Millisecond
)

// watch keeps a node's figures of the last minutes. Package stats decides what they are.
type watch struct {
	now     func() postdate.Time
	metrics prometheus.Gatherer
	loop    *loop

	mu       sync.Mutex
	recorder stats.Recorder
	last     stats.Reading
	tookAt   time.Time

	asking singleflight.Group // by question: those who ask at the same time get one answer
}

// run reads the metrics at the beginning of each slot, until ctx ends.
func (w *watch) run(ctx context.Context) {
	for {
		w.mu.Lock()
		w.take()
		w.mu.Unlock()
		next := time.NewTimer(stats.SlotTime - time.Duration(w.now().Std().UnixNano())%stats.SlotTime)
		select {
		case <-ctx.Done():
			next.Stop()
			return
		case <-next.C:
		}
	}
}

// take reads the metrics. The lock is held.
func (w *watch) take() {
	families, _ := w.metrics.Gather() // what cannot be gathered is missing, and the rest is not
	w.last, w.tookAt = stats.Read(families), time.Now()
	w.recorder.Take(w.now(), w.last)
}

// figures are what this node says of a tenant, or of all if it is "".
func (w *watch) figures(tenant string) stats.Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.tookAt) > freshFor {
		w.take()
	}
	n := w.recorder.Say(tenant)
	view := w.loop.View()
	n.Overdue, n.InHand, n.ChannelsDown = view.Late(), view.Hand, view.Down
	return n
}

// pending is what of a tenant, or of all, is pending in the whole store; nil: not known.
func (w *watch) pending(tenant string) *stats.Pending {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last.Pending(tenant)
}

// stats are the figures of the whole cluster, which GET /v1/stats shows.
func (n *Node) stats(ctx context.Context, tenant string) stats.Stats {
	s, _, _ := n.watch.asking.Do(string(questionFigures)+tenant, func() (any, error) {
		return n.askFigures(ctx, tenant), nil
	})
	return s.(stats.Stats)
}

func (n *Node) askFigures(ctx context.Context, tenant string) stats.Stats {
	nodes := map[string]stats.Node{n.c.NodeID: n.watch.figures(tenant)}
	answers, missing := n.ask(ctx, questionFigures, tenant)
	for name, answer := range answers {
		var said stats.Node
		if json.Unmarshal(answer, &said) != nil {
			missing = append(missing, name) // of another version
			continue
		}
		nodes[name] = said
	}
	slices.Sort(missing)
	s := stats.Merge(n.watch.now(), nodes)
	s.Tenant, s.Missing = tenant, missing
	s.Pending = n.watch.pending(tenant)
	return s
}

// self is what a node says of itself.
type self struct {
	ClockOffset *time.Duration
	Lease       api.Lease
}

func (n *Node) self() self {
	now, status := n.clock.now(), n.loop.Status()
	s := self{Lease: api.Lease{ID: n.loop.leaseID, Lasts: n.loop.lease, Left: max(status.Lease-now.Mono, 0)}}
	if ahead, known := n.loop.board.ClockOffset(now); known {
		s.ClockOffset = &ahead
	}
	return s
}

// addSelves adds to members what each says of itself. Who does not answer has nothing to show.
func (n *Node) addSelves(ctx context.Context, members []api.Member) {
	heard, _, _ := n.watch.asking.Do(string(questionSelf), func() (any, error) {
		answers, _ := n.ask(ctx, questionSelf, "")
		return answers, nil
	})
	answers := heard.(map[string][]byte)
	for i := range members {
		m := &members[i]
		var said self
		if m.Node == n.c.NodeID {
			said = n.self()
		} else if json.Unmarshal(answers[m.Node], &said) != nil {
			continue
		}
		m.ClockOffset, m.Lease = said.ClockOffset, &said.Lease
	}
}

// ask asks all other nodes.
func (n *Node) ask(ctx context.Context, what byte, about string) (answers map[string][]byte, missing []string) {
	if n.cluster == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	return n.cluster.gossip.Ask(ctx, append([]byte{what}, about...))
}

// asked answers another node. What it does not understand it answers with nothing.
func (n *Node) asked(question []byte) (answer []byte) {
	if len(question) == 0 {
		return nil
	}
	var say any
	switch question[0] {
	case questionFigures:
		say = n.watch.figures(string(question[1:]))
	case questionSelf:
		say = n.self()
	default:
		return nil
	}
	answer, _ = json.Marshal(say) // plain data: it cannot fail
	return answer
}
