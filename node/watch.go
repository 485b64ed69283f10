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

// What a node asks others by gossip: a byte; for figures also the tenant's name, or nothing for all tenants; for
// channels the tenant's name, a zero byte, and the name of the channel after which to begin.
const (
	questionChannels      = 'h'
	questionFigures       = 'f'
	questionClockAndLease = 'c'
)

const (
	// answerTimeout is how long a node waits for the others' answers.
	answerTimeout = 500 * time.Millisecond

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
	readAt   time.Time

	asks singleflight.Group // by question: those who ask at the same time get one answer
}

// run reads the metrics at the beginning of each slot, until ctx ends.
func (w *watch) run(ctx context.Context) {
	for {
		w.mu.Lock()
		w.read()
		w.mu.Unlock()
		now := w.now()
		next := time.NewTimer(stats.SlotEnd(now).Sub(now))
		select {
		case <-ctx.Done():
			next.Stop()
			return
		case <-next.C:
		}
	}
}

// read reads the metrics. The lock is held.
func (w *watch) read() {
	families, _ := w.metrics.Gather() // what cannot be gathered is missing, and the rest is not
	w.last, w.readAt = stats.Read(families), time.Now()
	w.recorder.Record(w.now(), w.last)
}

// refresh reads the metrics if the last reading is too old to show. The lock is held.
func (w *watch) refresh() {
	if time.Since(w.readAt) > freshFor {
		w.read()
	}
}

// report has this node's figures of a tenant, or of all if it is "".
func (w *watch) report(tenant string) stats.Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refresh()
	n := w.recorder.Report(tenant)
	view := w.loop.View()
	n.Overdue, n.InHand, n.ChannelsDown = view.LongestOverdue(), view.Hand, view.Down
	if tenant == "" {
		n.Down = view.FirstDown
	}
	return n
}

// channelRates has this node's rates of a tenant's channels.
func (w *watch) channelRates(tenant string) stats.ChannelRates {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refresh()
	return w.recorder.ChannelRates(tenant)
}

// pending is what of a tenant, or of all, is pending in the whole store; nil: not known.
func (w *watch) pending(tenant string) *stats.Pending {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last.Pending(tenant)
}

// stats are the figures of the whole cluster, which GET /v1/stats shows.
func (n *Node) stats(ctx context.Context, tenant string) stats.Stats {
	s, _, _ := n.watch.asks.Do(string(questionFigures)+tenant, func() (any, error) {
		return n.askFigures(ctx, tenant), nil
	})
	return s.(stats.Stats)
}

func (n *Node) askFigures(ctx context.Context, tenant string) stats.Stats {
	reports, missing := reportsOf[stats.Report](n.ask(ctx, questionFigures, tenant))
	reports[n.c.NodeID] = n.watch.report(tenant)
	s := stats.Merge(n.watch.now(), reports)
	s.Tenant, s.Missing = tenant, missing
	s.Pending = n.watch.pending(tenant)
	return s
}

// clockAndLease is what only a node itself knows of its clock and its lease.
type clockAndLease struct {
	ClockOffset *time.Duration
	Lease       api.Lease
}

func (n *Node) clockAndLease() clockAndLease {
	now, status := n.clock.now(), n.loop.Status()
	c := clockAndLease{Lease: api.Lease{ID: n.loop.leaseID, Lasts: n.loop.lease, Left: max(status.Lease-now.Mono, 0)}}
	if ahead, known := n.loop.board.ClockOffset(now); known {
		c.ClockOffset = &ahead
	}
	return c
}

// addClocksAndLeases adds to members the clock and the lease of each. Who does not answer has none to show.
func (n *Node) addClocksAndLeases(ctx context.Context, members []api.Member) {
	shared, _, _ := n.watch.asks.Do(string(questionClockAndLease), func() (any, error) {
		answers, _ := n.ask(ctx, questionClockAndLease, "")
		return answers, nil
	})
	answers := shared.(map[string][]byte)
	for i := range members {
		m := &members[i]
		var its clockAndLease
		if m.Node == n.c.NodeID {
			its = n.clockAndLease()
		} else if json.Unmarshal(answers[m.Node], &its) != nil {
			continue
		}
		m.ClockOffset, m.Lease = its.ClockOffset, &its.Lease
	}
}

// reportsOf decodes the answers of nodes. Those of another version that are not understood are missing.
func reportsOf[T any](answers map[string][]byte, missing []string) (map[string]T, []string) {
	reports := map[string]T{}
	for name, answer := range answers {
		var report T
		if json.Unmarshal(answer, &report) != nil {
			missing = append(missing, name)
			continue
		}
		reports[name] = report
	}
	slices.Sort(missing)
	return reports, missing
}

// ask asks all other nodes.
func (n *Node) ask(ctx context.Context, what byte, about string) (answers map[string][]byte, missing []string) {
	if n.cluster == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return n.cluster.gossip.Ask(ctx, append([]byte{what}, about...))
}

// asked answers another node. What it does not understand it answers with nothing.
func (n *Node) asked(question []byte) (answer []byte) {
	if len(question) == 0 {
		return nil
	}
	var report any
	switch question[0] {
	case questionFigures:
		report = n.watch.report(string(question[1:]))
	case questionClockAndLease:
		report = n.clockAndLease()
	case questionChannels:
		ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
		defer cancel()
		channels, err := n.reportChannels(ctx, string(question[1:]))
		if err != nil {
			return nil
		}
		report = channels
	default:
		return nil
	}
	// The JSON is a wire format between nodes of different versions: a field may be added, and none may change its name
	// or its meaning. Who does not know a field passes over it.
	answer, _ = json.Marshal(report) // plain data: it cannot fail
	return answer
}
