package ring

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/buraksezer/consistent"
	"github.com/spaolacci/murmur3"
)

const (
	// loadMax is the most that a node may own, as a multiple of the mean, rounded up.
	loadMax = 1.25

	// strataMax is the most points that a node has on the circle. More points than buckets
	// change nothing; more than this take time at every change of the members and gain little
	// (package comment).
	strataMax = 256

	// seed is a value with which the usual names (node-1, postdate-0, …) keep both bounds at
	// every size that TestUsualNames tries. Nodes with different seeds would disagree, so it
	// never changes.
	seed = 118
)

// Assign returns for each bucket the member that is to own it. It depends only on the set of
// names, not on their order or on who was there before. It is nil if there are no members.
func Assign(members []string, buckets int) []string {
	names := slices.Compact(slices.Sorted(slices.Values(members)))
	if len(names) == 0 || buckets <= 0 {
		return nil
	}
	// The library rounds the mean down before it multiplies: with fewer buckets than members
	// nothing would fit. Extra partitions beyond the buckets avoid that; they come last, so
	// they take no room from the others.
	c := newCircle(names, max(buckets, len(names)))
	room := math.Ceil(loadMax * float64(buckets) / float64(len(names)))
	ring := consistent.New(c.members, consistent.Config{
		Hasher: c, PartitionCount: c.partitions, ReplicationFactor: c.strata,
		// Half a bucket less, because the library rounds the product up: then no floating-point
		// error can change the room.
		Load: (room - 0.5) / float64(c.partitions/len(names)),
	})
	owners := make([]string, buckets)
	for b := range owners {
		owners[b] = string(ring.GetPartitionOwner(b).(member))
	}
	return owners
}

// Share lists, in ascending order, the buckets that me is to own among these members.
func Share(members []string, me string, buckets int) (share []int) {
	for b, owner := range Assign(members, buckets) {
		if owner == me {
			share = append(share, b)
		}
	}
	return share
}

// member is a node's name as the library wants it.
type member string

// String ends in a separator, after which the library writes a point's number, so that no two
// names share a point's key.
func (m member) String() string { return string(m) + "#" }

// circle says where partitions and points lie on the library's circle of 2^64
// positions, which is all that the library asks of a hash.
type circle struct {
	members    []consistent.Member
	partitions int
	strata     int
	points     map[string]uint64 // by the key that the library makes of a point
}

func newCircle(names []string, partitions int) *circle {
	// The library wants a second point before it calls a circle full.
	c := &circle{partitions: partitions, strata: max(min(partitions, strataMax), 2)}
	c.points = make(map[string]uint64, len(names)*c.strata)
	for _, name := range names {
		c.members = append(c.members, member(name))
		for i, p := range pointsOf(name, c.strata) {
			c.points[member(name).String()+strconv.Itoa(i)] = p
		}
	}
	return c
}

// Sum64 is the position of a partition, whose key is its number in eight bytes, or of a
// member's point. A point's key ends in a digit, a partition's in a zero byte.
func (c *circle) Sum64(key []byte) uint64 {
	if len(key) == 8 && key[7] == 0 {
		return binary.LittleEndian.Uint64(key) * (math.MaxUint64 / uint64(c.partitions))
	}
	return c.points[string(key)]
}

// pointsOf returns a node's points, one in each stratum of the circle. Their depths in the
// strata are a permutation of evenly spaced ones, so that a node is near the front equally
// often whatever its name. Compared with points anywhere, that halves the misses of both bounds
// (package comment).
func pointsOf(name string, strata int) []uint64 {
	type draw struct {
		stratum int
		order   uint64 // of its depth among the node's own
		jitter  uint64 // within its depth, so that no two nodes' points meet
	}
	key := append(make([]byte, 8, 8+len(name)), name...)
	draws := make([]draw, strata)
	for i := range draws {
		binary.LittleEndian.PutUint64(key, uint64(i))
		order, jitter := murmur3.Sum128WithSeed(key, seed)
		draws[i] = draw{i, order, jitter}
	}
	slices.SortFunc(draws, func(a, b draw) int {
		if a.order != b.order {
			return cmp.Compare(a.order, b.order)
		}
		return a.stratum - b.stratum
	})
	stratum := math.MaxUint64 / uint64(strata)
	depth := stratum / uint64(strata)
	points := make([]uint64, strata)
	for rank, d := range draws {
		points[d.stratum] = uint64(d.stratum)*stratum + uint64(rank)*depth + d.jitter%depth
	}
	return points
}
