package stats

import "slices"

// Bounds are the upper bounds of the classes of lateness, in seconds: those of postdate_lateness_seconds. Beyond the
// last one is one class more.
var Bounds = []float64{.0005, .001, .002, .005, .01, .025, .05, .1, .25, .5,
	1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}

// Lateness counts messages by how late they were: one count for each class, or none at all.
type Lateness []uint64

// Count is how many messages it counts.
func (l Lateness) Count() (sum uint64) {
	for _, n := range l {
		sum += n
	}
	return sum
}

// plus is the sum. Counts of other classes, which a node of another version may send, are left out.
func (l Lateness) plus(other Lateness) Lateness {
	if len(other) != len(Bounds)+1 {
		return l
	}
	sum := slices.Clone(other)
	for i, n := range l {
		sum[i] += n
	}
	return sum
}

func (l Lateness) since(before Lateness) Lateness {
	more := slices.Clone(l)
	for i := range min(len(more), len(before)) {
		more[i] = over(more[i], before[i])
	}
	return more
}

// Quantile is about how late the share q of the messages was at most, in seconds. As Prometheus'
// histogram_quantile does, it takes the messages of a class to lie evenly between its bounds, and those beyond the
// last bound to be as late as that. ok is false if there are no messages.
func (l Lateness) Quantile(q float64) (seconds float64, ok bool) {
	count := l.Count()
	if count == 0 {
		return 0, false
	}
	rank, low, seen := q*float64(count), 0.0, uint64(0)
	for i, n := range l[:len(l)-1] {
		if float64(seen+n) >= rank && n > 0 {
			return low + (Bounds[i]-low)*(rank-float64(seen))/float64(n), true
		}
		low, seen = Bounds[i], seen+n
	}
	return low, true
}
