package pebble

import (
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// cacheShare is the part of the memory that the cache takes where nobody says how much: a
	// twentieth. The filters of a hundred million messages have 125 MB.
	cacheShare = 20
	cacheMin   = 64 << 20
	cacheMax   = 512 << 20
)

// cacheFor is how large a cache is by default, in bytes, in so much memory.
func cacheFor(memory uint64) int64 { return int64(min(max(memory/cacheShare, cacheMin), cacheMax)) }

// memoryBytes is the memory that this process may use: the machine's, or its cgroup's
// where that has less. A machine that does not say counts as small.
func memoryBytes() uint64 {
	machine, err := memlimit.FromSystem()
	if err != nil {
		machine = 0
	}
	group, err := memlimit.FromCgroup()
	if err != nil { // there is no limit, or no cgroup
		group = math.MaxUint64
	}
	return min(machine, group)
}
