package sim

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// inSource lists bugs of the product itself: a piece of its source, and what a mistake
// would have made of it. Each was a bug once, or is one that a review found. The
// product has no switch for them; the simulator is built anew with each (go build
// -overlay).
var inSource = []struct {
	bug, file, from, to string
	promises            []int // whose watchers may see it first
}{
	{
		"a bucket is given back without being drained", "node/machine/broker.go",
		"		m.stepPoller(now, fence.Drain{Holds: working})\n",
		"		m.stepPoller(now, fence.Lost{Holds: working})\n		m.stepFence(now, fence.Drained{Holds: working})\n",
		[]int{1, 4},
	},
	{
		"a bucket goes back while it is being fenced at a broker, and is worked on afterwards", "node/machine/broker.go",
		"		m.forgetAtBroker(idle...)\n", "",
		[]int{4, 5},
	},
	{
		"a member that names another node's lease has a share", "node/machine/share.go",
		" && LeaseOf(m.Name, m.Lease)", "",
		[]int{7, 8},
	},
	{
		"every lease is judged by the watcher's own lease time", "fence/watch.go",
		"	return began-s.since >= s.wait()\n", "	return began-s.since >= w.own\n",
		[]int{4, 5},
	},
	{
		"a node deletes by its own wall clock", "node/machine/expiry.go",
		"	if t, known := x.clock.at(now); known {\n		return t\n	}\n", "	if true {\n		return now.Wall\n	}\n",
		[]int{1},
	},
	{
		"a node deletes by its own wall clock, and without a lease", "node/machine/expiry.go",
		"	by := x.by(now)\n	if by == 0 || now.Mono >= m.fence.Until() || m.fence.Ahead() != 0 {\n", "	by := now.Wall\n	if by == 0 {\n",
		[]int{1},
	},
	{
		"a node whose clock is behind dates what ends by it", "node/machine/clock.go",
		"known && c.skewMax > 0 && t.Sub(now.Wall) > c.skewMax {\n		return t\n", "known && c.skewMax > 0 && t.Sub(now.Wall) > c.skewMax {\n		return now.Wall\n",
		[]int{1},
	},
	{
		"a retry of a bucket that was lost is written, by a clock that may be wrong", "poller/settle.go",
		"	if it.bucket.lost && s.How != store.SettleDelivered {\n", "	if it.bucket.lost && false {\n",
		[]int{1},
	},
}

// TestBiteInSource shows that the simulator finds bugs of the product's own source.
func TestBiteInSource(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the simulator for each bug")
	}
	for _, b := range inSource {
		t.Run(b.bug, func(t *testing.T) {
			t.Parallel()
			promise, line := biteInSource(t, b.file, b.from, b.to)
			if !slices.Contains(b.promises, promise) {
				t.Fatalf("%s; want the watcher of one of %v", line, b.promises)
			}
			t.Log(line)
		})
	}
}

var broken = regexp.MustCompile(`BROKEN: promise (\d), .*`)

// biteInSource builds the simulator with a change, plays worlds until a promise is
// broken, and says which one.
func biteInSource(t *testing.T, file, from, to string) (promise int, line string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), from); n != 1 {
		t.Fatalf("%s has %d times: %q", file, n, from)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	original, err := filepath.Abs(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{changed: []byte(strings.Replace(string(text), from, to, 1)), overlay: replace} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "sim")
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", program, "../cmd/sim").CombinedOutput(); err != nil {
		t.Fatalf("building with the bug: %v\n%s", err, out)
	}
	out, err := exec.Command(program, "-seed", "0", "-hours", "40", "-shrink", "1ns").CombinedOutput()
	found := broken.FindStringSubmatch(string(out))
	if found == nil {
		t.Fatalf("not found (%v):\n%s", err, out)
	}
	promise, _ = strconv.Atoi(found[1])
	return promise, found[0]
}
