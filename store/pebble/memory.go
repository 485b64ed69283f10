package pebble

import (
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/postdate/postdate"
)

// cacheFor is the default size of the cache, in bytes, on a machine with this much memory. The
// filters of a hundred million messages take 125 MB of it.
func cacheFor(memory uint64) int64 {
	return int64(min(max(memory/postdate.StoreCacheShare, postdate.StoreCacheDefaultMin),
		postdate.StoreCacheDefaultMax))
}

// memoryBytes is the memory that this process may use: the machine's, or its cgroup's if that
// is less. It is 0 if the machine does not say.
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
