package pebble

import (
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// cacheShare is the part of the memory that the cache takes by default: a twentieth. The
	// filters of a hundred million messages take 125 MB.
	cacheShare = 20
	cacheMin   = 64 << 20
	cacheMax   = 512 << 20
)

// cacheFor is the default size of the cache, in bytes, for so much memory.
func cacheFor(memory uint64) int64 { return int64(min(max(memory/cacheShare, cacheMin), cacheMax)) }

// memoryBytes is the memory that this process may use: the machine's, or its cgroup's
// where that is less. It is 0 where the machine does not say.
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
