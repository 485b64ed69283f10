package sim

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// inSource lists bugs in the product's own source: a piece of it, and the mistake to replace it
// with. Each was once a bug, or was found in a review. The product has no switch for them; the
// simulator is built with all of them (withBugs), and plays each by itself.
var inSource = []struct {
	bug, file, from, to string
	promises            []int  // the promises whose watchers may see it first
	first               uint64 // the seed to begin with: one known to find it, if few before it do
}{
	{
		"nobody is woken for what came due since the last step", "poller/poller.go",
		"waker{tried: m.reading(m.stepped), now: m.reading(now), wait: wakeMax}", "waker{tried: now, now: now, wait: wakeMax}",
		[]int{8}, 37,
	},
	{
		"a machine asks to be woken at once, whatever it waits for", "poller/poller.go",
		"	return w.wait\n", "	return 0\n",
		[]int{0}, 0,
	},
	{
		"a bucket is given back without being drained", "node/machine/broker.go",
		"		m.stepPoller(now, fence.Drain{Holds: working})\n",
		"		m.stepPoller(now, fence.Lost{Holds: working})\n		m.stepFence(now, fence.Drained{Holds: working})\n",
		[]int{1, 4}, 3,
	},
	{
		"what the store delivers and settles in one step is in doubt after a crash", "poller/hand.go",
		" && !c.delivers", "",
		[]int{4}, 0,
	},
	{
		"what the store delivers and settles in one step is in doubt after an unknown outcome", "poller/settle.go",
		"it.doubt || !it.channel.delivers", "true",
		[]int{4}, 0,
	},
	{
		"a member that names another node's lease has a share", "node/machine/share.go",
		" && LeaseOf(m.Name, m.Lease)", "",
		[]int{7, 8}, 7,
	},
	{
		"what is stuck may fill the hand", "poller/room.go",
		"	return min(room, c.shareOf(m.handMax(now, c), (*channel).doubtful))\n", "	return m.c.HandMax\n",
		[]int{4, 7}, 0,
	},
	{
		"a claim takes as much as there is memory for", "poller/room.go",
		"int { return max((m.c.DoubtMax/2-m.comingOfAny)/2, 1) }\n", "int { return m.c.HandMax }\n",
		[]int{4}, 29,
	},
	{
		"a message that a page left out is taken for settled", "poller/scan.go",
		"b.firstLate(), b.leftOut.Time, b.record", "b.firstLate(), b.record",
		[]int{6}, 0,
	},
	{
		"a channel is left behind at what was read, not at what was claimed", "poller/behind.go",
		"	s := placesOf(b.record)\n", "	s := placesOf(b.record)\n	s.claimed = b.read\n",
		[]int{1, 3, 4, 6}, 2,
	},
	{
		"what is passed over beyond what is claimed is not read again", "poller/lane.go",
		"		c.IfDue = len(c.Behind) == 0 && ", "		c.IfDue = ",
		[]int{6, 7, 8}, 0,
	},
	{
		"a lane that is well again begins claims at once", "poller/lane.go",
		"	l.nextClaim, l.nextSettle, l.joinBy = 0, 0, now.Mono+min(now.Mono-began, joinMax)\n", "	l.nextClaim, l.nextSettle = 0, 0\n",
		[]int{7}, 68,
	},
	{
		"a lane that is well again settles at once", "poller/settle.go",
		"max(l.nextSettle, l.joinBy)", "l.nextSettle",
		[]int{7}, 18,
	},
	{
		"what cannot be settled takes the room of its channel", "poller/lane.go",
		"	return l.nextSettle != 0 && ", "	return false && l.nextSettle != 0 && ",
		[]int{7}, 18,
	},
	{
		"what is in reach comes back after buckets that are out of reach", "poller/rotation.go",
		"		r.queue.MoveToBack(e)\n", "",
		[]int{7}, 28,
	},
	{
		"what is brought back waits until the clock has come to where it once was", "poller/park.go",
		"	case at <= ahead.Add(claimedAhead):\n", "	case true:\n",
		[]int{1}, 9,
	},
	{
		"one bucket that cannot be asked for what is parked hides it in all", "poller/find.go",
		"		some := min(len(failed), m.findMax)\n", "		some := len(failed)\n",
		[]int{7}, 8,
	},
	{
		"each round asks first about the buckets that failed in the last one", "poller/find.go",
		"			return cmp.Or(cmp.Compare(m.buckets[a].findFailedAt, m.buckets[b].findFailedAt), cmp.Compare(a, b))\n", "			return cmp.Compare(a, b)\n",
		[]int{7}, 8,
	},
	{
		"what was read between two writes of its parking is published", "poller/hand.go",
		"		return // it was settled while the scan was under way\n	default:\n", "		return // it was settled while the scan was under way\n	case false:\n",
		[]int{3, 6}, 51,
	},
	{
		"buckets whose calls fail stay together with the others", "poller/lane.go",
		"	parts := min(len(buckets), splitMax, lanesMax-len(m.apart))\n", "	parts := 0\n",
		[]int{8}, 7,
	},
	{
		"a hand-over waits for publishes that are not answered", "poller/leave.go",
		"	case b.resting() && now.Mono >= b.restUntil:\n", "	case false:\n",
		[]int{7}, 153,
	},
	{
		"a new channel waits for others that never answered", "poller/room.go",
		"	if s.inFlight == 0 && unproven < 2*quarter {\n", "	if false {\n",
		[]int{4, 7, 8}, 15,
	},
	{
		"every lease is judged by the watcher's own lease time", "fence/watch.go",
		"	return began-s.since >= s.wait()\n", "	return began-s.since >= w.own\n",
		[]int{4, 5}, 0,
	},
	{
		"a node deletes by its own wall clock", "node/machine/expiry.go",
		"	if t, known := x.clock.at(now); known {\n		return t.Add(-retention)\n	}\n", "	if true {\n		return now.Wall.Add(-retention)\n	}\n",
		[]int{1}, 4,
	},
	{
		"a node deletes by its own wall clock, and without a lease", "node/machine/expiry.go",
		"	settled, delivered := x.before(now, m.c.Retention), x.before(now, m.c.InboxRetention)\n	if settled == 0 && delivered == 0 || now.Mono >= m.fence.Until() || m.fence.Ahead() != 0 {\n", "	settled, delivered := now.Wall.Add(-m.c.Retention), now.Wall.Add(-m.c.InboxRetention)\n	if settled == 0 && delivered == 0 {\n",
		[]int{1}, 4,
	},
	{
		"a node whose clock is behind dates what ends by it", "node/machine/clock.go",
		"known && c.skewMax > 0 && t.Sub(now.Wall) > c.skewMax {\n		return t\n", "known && c.skewMax > 0 && t.Sub(now.Wall) > c.skewMax {\n		return now.Wall\n",
		[]int{1}, 4,
	},
	{
		"a channel is the same for all tenants", "route.go",
		"	if tenant == DefaultTenant && p == PriorityMedium {\n", "	if p == PriorityMedium {\n",
		[]int{8}, 27,
	},
	{
		"a channel is the same for all priorities", "route.go",
		"tenant + priorityMarks[p] + ", "tenant + ",
		[]int{8}, 147,
	},
	{
		"each priority has what the channel may have", "poller/outlet.go",
		"		more = min(more, max(n>>above, min(n, 1))-taken)\n", "		more = n - of(c)\n",
		[]int{4}, 2,
	},
	{
		"a tenant with more overdue than claims read at once is not left behind", "poller/behind.go",
		"	for _, o := range overdue {\n", "	for _, o := range overdue[:0] {\n",
		[]int{8}, 117,
	},
	{
		"what is parked never fails", "poller/wait.go",
		"	case c.site.down && c.site.tried:\n", "	case false:\n",
		[]int{1}, 0,
	},
	{
		"time under a pause counts", "poller/wait.go",
		"	return min(max(since, s.answered, m.resumed[it.channel.name]), now.Wall)\n", "	return min(max(since, s.answered), now.Wall)\n",
		[]int{1}, 5,
	},
	{
		"a bucket that hangs on the own lease unknown to its node is not looked at", "fence/look.go",
		"	for b := range m.loose {\n		buckets = append(buckets, b)\n	}\n", "",
		[]int{1, 6, 7, 8}, 42,
	},
	{
		"a node that is alone believes a clock that was set at once", "node/machine/expiry.go",
		"func (x *expiry) clockSet(now postdate.Now) { x.since = now.Mono }\n", "func (x *expiry) clockSet(now postdate.Now) {}\n",
		[]int{1}, 19,
	},
	{
		"a node that is alone believes a clock that was set before the first renewal", "node/machine/expiry.go",
		"			x.watched, x.since = true, now.Mono\n", "			x.watched = true\n",
		[]int{1}, 9,
	},
	{
		"a node that is alone believes a clock sooner for what is kept longer", "node/machine/expiry.go",
		"	if now.Mono-x.since < min(believeAfter, retention) {\n", "	if now.Mono-x.since < min(believeAfter, retention, x.c.InboxRetention) {\n",
		[]int{1}, 69,
	},
	{
		"the next occurrence counts from when the last one was settled", "poller/settle.go",
		"		s.At = m.endsAt(m.stepped)\n", "		s.At = m.endsAt(m.stepped)\n		if s.Advances() && !s.Next.Over && s.Next.Skipped == 0 {\n			s.Next.Occurrence += max(s.At-it.Begins, 0)\n			s.Next.AttemptTime += max(s.At-it.Begins, 0)\n		}\n",
		[]int{9}, 0,
	},
	{
		"an occurrence is misfired as soon as it is late", "recurrence/misfire.go",
		"now.Add(-r.given.MisfireAfter - r.given.Jitter)", "now.Add(-r.given.Jitter)",
		[]int{9}, 2,
	},
	{
		"more late occurrences begin than may", "recurrence/misfire.go",
		"		begin = min(misfired, postdate.FireAllMax)\n", "		begin = misfired\n",
		[]int{9}, 2,
	},
	{
		"an early one of several late occurrences begins", "poller/series.go",
		"		next := it.nextAt(at, ok)\n", "		if skipped > 1 {\n			skipped, ok = 1, true\n			at, _ = it.rule.Next(rec.Occurrence, rec.Run)\n		}\n		next := it.nextAt(at, ok)\n",
		[]int{9}, 2,
	},
	{
		"an occurrence that may have been delivered is skipped", "poller/series.go",
		"		case it.doubt: // it may have begun\n", "		case false:\n",
		[]int{9}, 2,
	},
	{
		"an occurrence that is retried holds up the next", "poller/settle.go",
		"	if it.rule != nil && s.How != store.SettlePark && ", "	if it.rule != nil && s.How != store.SettlePark && s.How != store.SettleRetry && ",
		[]int{9}, 0,
	},
	{
		"a series that is cancelled in flight goes on", "store/settlement.go",
		"	case old.Ending:\n		next", "	case false:\n		next",
		[]int{9}, 0,
	},
	{
		"what is due of a paused series is sent", "poller/series.go",
		"		case rec.Paused:\n", "		case false:\n",
		[]int{9}, 0,
	},
	{
		"a settlement forgets a pause", "store/settlement.go",
		"Run: old.Run + max(int(s.Next.Skipped), 1), Paused: old.Paused,", "Run: old.Run + max(int(s.Next.Skipped), 1),",
		[]int{9}, 0,
	},
	{
		"what a pause left out is not counted", "recurrence/change.go",
		"before.Count(old.Occurrence, from+1); n > 0 {", "before.Count(old.Occurrence, from+1); n > 1 {",
		[]int{9}, 0,
	},
	{
		"a resumed series goes on with what is over", "recurrence/change.go",
		"	if !stays || due && old.Paused && !paused {\n", "	if !stays || due && old.Paused && paused {\n",
		[]int{9}, 0,
	},
	{
		"a change takes the present occurrence along", "recurrence/change.go",
		"		next.Occurrence = at\n", "		if stays {\n			next.Occurrence = at\n		}\n",
		[]int{9}, 0,
	},
	{
		"an occurrence out of turn may have the time of another", "recurrence/change.go",
		"	for rule.Count(at, at+1) > 0 {\n", "	for rule.Count(at, at+1) > 1 {\n",
		[]int{9}, 7,
	},
	{
		"a series that is behind keeps its bucket", "poller/leave.go",
		"	return blocked || it.atRest && it.bucket.resting()\n", "	return blocked\n",
		[]int{4, 7}, 213,
	},
	{
		"each occurrence waits for its channel anew", "poller/wait.go",
		"		since = max(s.downAt, it.Begins) // it waited behind the occurrences before it\n", "		since = now.Wall\n",
		[]int{1}, 2,
	},
	{
		"a clock is seen to be set once only until a renewal", "poller/scan.go",
		"	if by := off - m.setBy; max(by, -by) > m.c.JumpMax {\n", "	if by := off; m.setAt == 0 && max(by, -by) > m.c.JumpMax {\n",
		[]int{1}, 399,
	},
}

// TestBiteInSource shows that the simulator finds bugs in the product's own source.
func TestBiteInSource(t *testing.T) {
	for _, b := range inSource {
		changedBy(t, b.file, b.from, b.to)
	}
	if testing.Short() {
		t.Skip("builds the simulator with the bugs")
	}
	program := withBugs(t)
	for i, b := range inSource {
		t.Run(b.bug, func(t *testing.T) {
			t.Parallel()
			promise, line := biteInSource(t, program, i+1, b.first)
			if !slices.Contains(b.promises, promise) {
				t.Fatalf("%s; want the watcher of one of %v", line, b.promises)
			}
			t.Log(line)
		})
	}
}

var broken = regexp.MustCompile(`seed \d+ .*BROKEN: promise (\d), .*`)

// biteInSource plays worlds until a promise is broken, and returns its number.
func biteInSource(t *testing.T, program string, bug int, first uint64) (promise int, line string) {
	t.Helper()
	cmd := exec.Command(program, "-seed", fmt.Sprint(first), "-hours", "40", "-shrink", "1ns")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", plantedName, bug))
	out, err := cmd.CombinedOutput()
	found := broken.FindStringSubmatch(string(out))
	if found == nil {
		t.Fatalf("not found (%v):\n%s", err, out)
	}
	promise, _ = strconv.Atoi(found[1])
	return promise, found[0]
}

// changedBy returns the text of a file, and that with from, which occurs once, replaced by to.
func changedBy(t *testing.T, file, from, to string) (before, after string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), from); n != 1 {
		t.Fatalf("%s has %d times: %q", file, n, from)
	}
	return string(text), strings.Replace(string(text), from, to, 1)
}
