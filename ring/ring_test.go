package ring

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/buraksezer/consistent"
	"github.com/spaolacci/murmur3"
)

// moved counts the buckets that have another owner.
func moved(before, after []string) (n int) {
	for b := range before {
		if before[b] != after[b] {
			n++
		}
	}
	return n
}

// busiest is the most buckets that one member owns.
func busiest(owners []string) (most int) {
	counts := map[string]int{}
	for _, o := range owners {
		counts[o]++
		most = max(most, counts[o])
	}
	return most
}

// roomOf is the first bound: the most that a node may own.
func roomOf(buckets, nodes int) int { return int(math.Ceil(1.25 * float64(buckets) / float64(nodes))) }

// movesOf is the second bound: the most that may move when a node joins and makes this many
// nodes, or when one of this many leaves.
func movesOf(buckets, nodes int) int { return int(1.5 * float64(buckets) / float64(nodes)) }

func usual(format string, first, count int) (names []string) {
	for i := range count {
		names = append(names, fmt.Sprintf(format, first+i))
	}
	return names
}

var usualNames = []struct {
	format string
	first  int
}{{"node-%d", 1}, {"node-%d", 0}, {"node%d", 1}, {"postdate-%d", 0}, {"postdate-%d", 1}, {"n%d", 1}, {"10.0.0.%d", 1}}

// With the usual names both bounds hold, for a node that joins and for any node that leaves.
func TestUsualNames(t *testing.T) {
	for _, u := range usualNames {
		for _, buckets := range []int{64, 256, 1024} {
			for nodes := 2; nodes <= 10; nodes++ {
				names := usual(u.format, u.first, nodes)
				with := Assign(names, buckets)
				if most, room := busiest(with), roomOf(buckets, nodes); most > room {
					t.Errorf("%d nodes like %s, %d buckets: one owns %d, at most %d", nodes, u.format, buckets, most, room)
				}
				for i, leaver := range names {
					if buckets != 64 && i != nodes-1 {
						continue // a matter of time only
					}
					without := Assign(slices.Delete(slices.Clone(names), i, i+1), buckets)
					if n, most := moved(without, with), movesOf(buckets, nodes); n > most {
						t.Errorf("%d nodes like %s, %d buckets: with or without %s moves %d, at most %d", nodes, u.format, buckets, leaver, n, most)
					}
				}
			}
		}
	}
}

// Every node computes the same answer, whatever it heard first or twice.
func TestOrderAndDuplicatesDoNotMatter(t *testing.T) {
	names := usual("node-%d", 1, 9)
	want := Assign(names, 256)
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		mixed := append(slices.Clone(names), names[random.IntN(9)], names[random.IntN(9)])
		random.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		if got := Assign(mixed, 256); !slices.Equal(got, want) {
			t.Fatalf("%v gives another answer than %v", mixed, names)
		}
	}
}

// The answer must be the same on every node, and so in every version of this package that may
// run next to another during a rolling restart.
func TestAssignIsForEver(t *testing.T) {
	got := strings.Join(Assign([]string{"a", "b", "c"}, 32), "")
	if want := "acbabacccbaaabccbccabbcbbababbac"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Any numbers work: every bucket has an owner and no node has too many, even if there are fewer
// buckets than nodes.
func TestEverySize(t *testing.T) {
	for nodes := 1; nodes <= 40; nodes++ {
		names := usual("x%d", 1, nodes)
		for _, buckets := range []int{1, 2, 3, 5, 7, 10, 16, 33, 64, 65, 100} {
			owners := Assign(names, buckets)
			if len(owners) != buckets {
				t.Fatalf("%d owners for %d buckets", len(owners), buckets)
			}
			for b, o := range owners {
				if !slices.Contains(names, o) {
					t.Fatalf("%d nodes, %d buckets: bucket %d belongs to %q", nodes, buckets, b, o)
				}
			}
			if most, room := busiest(owners), roomOf(buckets, nodes); most > room {
				t.Errorf("%d nodes, %d buckets: one owns %d, at most %d", nodes, buckets, most, room)
			}
		}
	}
}

func TestNobody(t *testing.T) {
	if got := Assign(nil, 64); got != nil {
		t.Errorf("no members, and %v", got)
	}
	if got := Assign([]string{"a"}, 0); got != nil {
		t.Errorf("no buckets, and %v", got)
	}
	if got := Share(nil, "a", 64); got != nil {
		t.Errorf("no members, and %v", got)
	}
	if got := Share([]string{"a"}, "b", 64); got != nil {
		t.Errorf("b is no member and has %v", got)
	}
}

func TestSharesAddUp(t *testing.T) {
	names := usual("node-%d", 1, 5)
	var all []int
	for _, n := range names {
		share := Share(names, n, 64)
		if !slices.IsSorted(share) {
			t.Errorf("%s's share is not in order: %v", n, share)
		}
		all = append(all, share...)
	}
	slices.Sort(all)
	for b := range 64 {
		if len(all) != 64 || all[b] != b {
			t.Fatalf("the shares together are %v", all)
		}
	}
}

// TestTable computes the table of the package comment again: how well random names keep the
// bounds. The names come from a fixed seed, so the figures are the same everywhere.
func TestTable(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, buckets := range []int{64, 256, 1024} {
		sets := map[int]int{64: 200, 256: 50, 1024: 10}[buckets]
		for _, nodes := range []int{3, 4, 5, 9} {
			row := fmt.Sprintf("//\t%7d  %2d to %-2d  %4d", buckets, nodes, nodes+1, sets)
			for _, assign := range []func([]string, int) []string{Assign, asItIs} {
				row += "  " + measure(assign, buckets, nodes, sets).String()
			}
			if !strings.Contains(string(text), row+"\n") {
				t.Errorf("not in the package comment:\n%s", row)
			}
		}
	}
}

// asItIs is the library with its defaults and a plain hash, for comparison.
func asItIs(names []string, buckets int) []string {
	var members []consistent.Member
	for _, n := range names {
		members = append(members, member(n))
	}
	ring := consistent.New(members, consistent.Config{Hasher: plain{}, PartitionCount: buckets})
	owners := make([]string, buckets)
	for b := range owners {
		owners[b] = string(ring.GetPartitionOwner(b).(member))
	}
	return owners
}

type plain struct{}

func (plain) Sum64(b []byte) uint64 { return murmur3.Sum64(b) }

// measured is one half of a row: the load of the busiest node and the buckets that moved, as
// multiples of k/n, and how many sets of names missed a bound.
type measured struct {
	loadMost             float64
	movedMean, movedMost float64
	missed               int
}

func (m measured) String() string {
	return fmt.Sprintf("%4.2f  %4.2f  %4.2f  %4d", m.loadMost, m.movedMean, m.movedMost, m.missed)
}

func measure(assign func([]string, int) []string, buckets, nodes, sets int) (m measured) {
	random := rand.New(rand.NewPCG(uint64(buckets), uint64(nodes)))
	share := float64(buckets) / float64(nodes+1)
	for range sets {
		var names []string
		for range nodes + 1 {
			names = append(names, fmt.Sprintf("%x", random.Uint64()))
		}
		before, after := assign(names[:nodes], buckets), assign(names, buckets)
		most, n := busiest(after), moved(before, after)
		m.loadMost = max(m.loadMost, float64(most)/share)
		m.movedMean += float64(n) / share / float64(sets)
		m.movedMost = max(m.movedMost, float64(n)/share)
		if most > roomOf(buckets, nodes+1) || n > movesOf(buckets, nodes+1) {
			m.missed++
		}
	}
	return m
}

func BenchmarkAssign(b *testing.B) {
	for _, size := range []struct{ nodes, buckets int }{{3, 64}, {9, 256}, {9, 1024}, {50, 4096}} {
		names := usual("node-%d", 1, size.nodes)
		b.Run(fmt.Sprintf("nodes=%d/buckets=%d", size.nodes, size.buckets), func(b *testing.B) {
			for b.Loop() {
				Assign(names, size.buckets)
			}
		})
	}
}
