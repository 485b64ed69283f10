package node

import (
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate/internal/proctest"
	"github.com/postdate/postdate/store/storetest"
)

// notExclusive is a store in memory that nodes could share.
type notExclusive struct{ *storetest.Mem }

func (notExclusive) Exclusive() bool { return false }

// described are the labels of a node's own metrics, by their names. The node has a cluster and all kinds
// of channels; nothing answers at its brokers.
func described(t *testing.T) map[string]string {
	t.Helper()
	c := DefaultConfig()
	c.HTTP, c.Gossip, c.NodeID, c.Log = "127.0.0.1:0", "127.0.0.1:0", "test", slog.New(slog.DiscardHandler)
	c.Store, c.RabbitMQ = "mongodb://in.memory.invalid/test", "amqp://guest:guest@"+proctest.Closed(t)+"/"
	c.Kafka.Seeds = []string{proctest.Closed(t)}
	n, err := StartWith(t.Context(), c, Parts{Store: notExclusive{storetest.NewMem(4)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Stop(t.Context()) })
	all := make(chan *prometheus.Desc)
	go func() {
		n.metrics.Describe(all)
		close(all)
	}()
	form := regexp.MustCompile(`^Desc\{fqName: "(postdate_[a-z_]+)", help: ".+", constLabels: \{\}, variableLabels: \{(.*)\}\}$`)
	own := map[string]string{}
	for d := range all {
		if m := form.FindStringSubmatch(d.String()); m != nil {
			own[m[1]] = sorted(m[2], ",")
		} else if strings.Contains(d.String(), "postdate") {
			t.Errorf("%s cannot be read", d)
		}
	}
	return own
}

// sorted sorts a list.
func sorted(list, separator string) string {
	names := strings.Split(list, separator)
	slices.Sort(names)
	return strings.Join(names, " ")
}

// The operator's document has a line for each metric of a node, with its labels, and for no other.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| metric | labels | what it is |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	documented := map[string]string{}
	for row := range strings.Lines(table) {
		columns := strings.Split(row, " | ")
		if strings.HasPrefix(row, "| --- ") {
			continue
		}
		if len(columns) != 3 {
			t.Fatalf("docs/operations.md has a row of %d columns: %s", len(columns), row)
		}
		for name := range strings.SplitSeq(strings.Trim(columns[0], "| "), ", ") {
			name = strings.Trim(name, "`")
			if _, twice := documented[name]; twice {
				t.Errorf("%s has two lines", name)
			}
			documented[name] = sorted(strings.ReplaceAll(columns[1], "`", ""), ", ")
		}
	}
	own := described(t)
	if len(own) < 20 {
		t.Fatalf("the node has the metrics %v", own)
	}
	for name, labels := range own {
		if got, is := documented[name]; !is {
			t.Errorf("docs/operations.md has no line for %s", name)
		} else if got != labels {
			t.Errorf("docs/operations.md gives %s the labels %q, and it has %q", name, got, labels)
		}
	}
	for name := range documented {
		if _, is := own[name]; !is {
			t.Errorf("docs/operations.md has a line for %s, which no node has", name)
		}
	}
}
