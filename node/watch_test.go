package node_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/store/storetest"
)

// client returns a client of one node.
func (m *team) client(name string) *nodetest.Client {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := nodetest.NewClient(m.nodes[name].Addr())
	m.t.Cleanup(c.Close)
	return c
}

func statsOf(t *testing.T, c *client.Client) client.Stats {
	t.Helper()
	s, err := c.Stats(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// counted adds up the series of a metric whose labels match, over all nodes.
func (m *team) counted(t *testing.T, series string) (sum int64) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^` + series + ` (\S+)$`)
	for _, name := range []string{"a", "b"} {
		for _, found := range line.FindAllStringSubmatch(metricsFor(t, m.client(name).Client), -1) {
			n, err := strconv.ParseFloat(found[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += int64(n)
		}
	}
	return sum
}

// Each node of a cluster shows the figures of all nodes, and these are the metrics'.
func TestStatsOfACluster(t *testing.T) {
	m := pairInMemory(t)
	defer m.remove("a")
	defer m.remove("b")
	const n = 100
	for i := range n {
		c := m.client([]string{"a", "b"}[i%2])
		message := client.Message{ScheduleID: fmt.Sprint(i), Channel: "inbox:a", ExecutionTime: time.Now(), Payload: []byte("1")}
		if i%4 == 3 {
			message.ExecutionTime, message.Labels = time.Now().Add(time.Hour), []string{[]string{"", "run", "run"}[i%3] + "x"}
		}
		if _, err := c.Schedule(patient(t), message); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.client("a").Cancel(patient(t), "3"); err != nil {
		t.Fatal(err)
	}
	id, err := m.client("b").CancelWhere(patient(t), client.JobFilter{Label: "runx"})
	if err != nil {
		t.Fatal(err)
	}
	j, err := m.client("b").WaitJob(patient(t), id, nil)
	if err != nil || j.Done == 0 || j.Failed != 0 {
		t.Fatalf("the job is %+v, %v", j, err)
	}
	pending := n/4 - 1 - j.Done
	want := client.Figures{Scheduled: n, Delivered: n * 3 / 4, Cancelled: 1 + j.Done}
	for _, name := range []string{"a", "b"} {
		var s client.Stats
		c := m.client(name)
		err := nodetest.Poll(patient(t), func() (bool, error) { // the metrics count after the store has it
			s = statsOf(t, c.Client)
			return s.Total == want && s.InHand == 0 && s.OverdueMs == 0 && s.Pending != nil && s.Pending.Messages == pending, nil
		})
		if err != nil {
			t.Fatalf("%s shows %+v, overdue for %d ms, %d in hand, %+v pending, want %+v, %d pending: %v",
				name, s.Total, s.OverdueMs, s.InHand, s.Pending, want, pending, err)
		}
		if !slices.Equal(s.Nodes, []string{"a", "b"}) || len(s.Missing) > 0 || !s.OwnSeries {
			t.Errorf("%s shows the figures of %v without %v, series of its own: %t", name, s.Nodes, s.Missing, s.OwnSeries)
		}
		var sum client.Figures
		for _, slot := range s.Slots {
			sum.Scheduled, sum.Delivered, sum.Cancelled = sum.Scheduled+slot.Scheduled, sum.Delivered+slot.Delivered, sum.Cancelled+slot.Cancelled
			if (slot.Delivered > 0) != (slot.LatenessMs != nil) {
				t.Errorf("a slot says %+v", slot)
			}
		}
		if sum != want || len(s.Slots) < 60 {
			t.Errorf("the %d slots have %+v, want %+v", len(s.Slots), sum, want)
		}
	}
	for series, of := range map[string]int64{
		`postdate_scheduled_total\{.*\}`: want.Scheduled, `postdate_settled_total\{how="delivered",.*\}`: want.Delivered,
		`postdate_lateness_seconds_count\{.*\}`: want.Delivered, `postdate_cancelled_total\{.*\}`: want.Cancelled,
	} {
		if got := m.counted(t, series); got != of {
			t.Errorf("%s is %d, want %d", series, got, of)
		}
	}
}

// Each node shows of all nodes what only they know of themselves.
func TestMembersSpeakForThemselves(t *testing.T) {
	const behind = 100 * time.Millisecond
	mem := shared{storetest.NewMem(32)}
	mem.Clock = func() postdate.Time { return postdate.WallOf(time.Now().Add(-behind)) }
	m := newTeam(t, func(c *node.Config, p *node.Parts) {
		c.Store, p.Store, c.ClockSkewMax = inMemory, mem, time.Minute
	})
	for _, name := range []string{"a", "b"} {
		m.add(name)
		defer m.remove(name)
	}
	m.awaitOwners("a", "b")
	for _, name := range []string{"a", "b"} {
		view, err := m.client(name).Cluster(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		leases := map[string]bool{}
		for _, member := range view.Members {
			l := member.Lease
			if l == nil || member.ClockOffsetMs == nil {
				t.Fatalf("%s shows %+v", name, member)
			}
			leases[l.ID] = true
			if l.LastsMs != 20_000 || l.LeftMs <= 0 || l.LeftMs > l.LastsMs {
				t.Errorf("%s shows the lease %+v of %s", name, l, member.Node)
			}
			// both clocks are read in whole milliseconds
			if offset := *member.ClockOffsetMs; offset < behind.Milliseconds()-1 || offset > time.Minute.Milliseconds() {
				t.Errorf("%s shows %s ahead by %d ms", name, member.Node, offset)
			}
		}
		if len(leases) != 2 {
			t.Errorf("%s shows the leases %v", name, leases)
		}
	}
}

// unanswered is a receiver that answers nothing until it is released.
type unanswered chan struct{}

func (h unanswered) ServeHTTP(http.ResponseWriter, *http.Request) { <-h }

// Each node lists the channels of all nodes: those with messages, with sums over the nodes, and those at rest of which
// something is set.
func TestChannelsOfACluster(t *testing.T) {
	mem, release := shared{storetest.NewMem(32)}, make(unanswered)
	receiver := httptest.NewServer(release)
	defer receiver.Close()
	m := newTeam(t, func(c *node.Config, p *node.Parts) {
		c.Store, p.Store, c.Webhook.Allow = inMemory, mem, []string{"127.0.0.1"}
	})
	clients := map[string]*nodetest.Client{}
	for _, name := range []string{"a", "b"} {
		m.add(name)
		defer m.remove(name)
		clients[name] = m.client(name)
	}
	defer close(release)
	m.awaitOwners("a", "b")
	const n = 30
	hung, gone := receiver.URL+"/hung", "https://nowhere.invalid/gone"
	for i := range n {
		for _, channel := range []string{hung, gone} {
			message := client.Message{ScheduleID: fmt.Sprint(channel[:5], i), Channel: channel, ExecutionTime: time.Now(), Payload: []byte("1")}
			if s, err := clients["a"].Schedule(patient(t), message); err != nil || !s.Created {
				t.Fatal(s, err)
			}
		}
	}
	rate := 7.0
	if _, err := clients["a"].ChangeChannel(patient(t), client.ChannelChange{Channel: "inbox:at-rest", MaxPerSecond: &rate}); err != nil {
		t.Fatal(err)
	}
	for name, c := range clients {
		var list client.ChannelList
		err := nodetest.Poll(patient(t), func() (done bool, err error) {
			if list, err = c.Channels(patient(t)); err != nil || len(list.Channels) != 3 {
				return false, err
			}
			down := list.Channels[1]
			return list.Channels[0].InHand == n && down.State == "down" && down.Parked, nil
		})
		if err != nil || len(list.Missing) > 0 {
			t.Fatalf("%s lists %+v: %v", name, list, err)
		}
		if c := list.Channels[0]; c.Channel != hung || c.State != "up" || c.InFlight == 0 || c.LastError != "" {
			t.Errorf("%s shows %+v", name, c)
		}
		if c := list.Channels[2]; c.Channel != "inbox:at-rest" || c.State != "up" || c.MaxPerSecond != rate || c.InHand != 0 {
			t.Errorf("%s shows %+v", name, c)
		}
		if c := list.Channels[1]; c.Channel != gone || c.LastError == "" || clients[c.LastErrorNode] == nil || time.Since(c.LastErrorAt) > time.Hour {
			t.Errorf("%s shows %+v", name, c)
		}
	}
	m.cutOff("b")
	err := nodetest.Poll(patient(t), func() (bool, error) {
		list, err := clients["a"].Channels(patient(t))
		return err == nil && slices.Equal(list.Missing, []string{"b"}) && len(list.Channels) == 3 && list.Channels[0].InHand < n, err
	})
	if err != nil {
		t.Error(err)
	}
	m.heal()
}

// A node that does not answer is named, and what it says of itself is missing.
func TestANodeThatDoesNotAnswer(t *testing.T) {
	m := pairInMemory(t)
	defer m.remove("a")
	defer m.remove("b")
	c := m.client("a")
	err := nodetest.Poll(patient(t), func() (bool, error) {
		m.heal()
		if !slices.Equal(statsOf(t, c.Client).Nodes, []string{"a", "b"}) {
			return false, nil
		}
		m.cutOff("b")
		for {
			s := statsOf(t, c.Client)
			switch {
			case slices.Equal(s.Missing, []string{"b"}) && slices.Equal(s.Nodes, []string{"a"}):
				return true, nil
			case len(s.Missing) == 0 && len(s.Nodes) == 1:
				return false, nil // the machine stalled, and b is no member any more
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	view, err := c.Cluster(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range view.Members {
		if known := member.Lease != nil; known != (member.Node == "a") {
			t.Errorf("a shows %+v", member)
		}
	}
	m.heal()
}

// A node whose store is its own has no lease to show, and no other clock.
func TestANodeAlone(t *testing.T) {
	_, c := start(t, config(t))
	view, err := c.Cluster(patient(t))
	if err != nil || len(view.Members) != 1 || view.Members[0].Lease != nil || view.Members[0].ClockOffsetMs != nil {
		t.Errorf("the members are %+v, %v", view.Members, err)
	}
	if s := statsOf(t, c.Client); len(s.Nodes) != 1 || s.Nodes[0] != view.Node || len(s.Missing) != 0 {
		t.Errorf("the figures are %+v", s)
	}
}
