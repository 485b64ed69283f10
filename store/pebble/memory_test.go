package pebble

import "testing"

// The cache takes a twentieth of the memory, but not too little for a small store's filters,
// nor what other programs may want.
func TestCacheFor(t *testing.T) {
	for memory, want := range map[uint64]int64{
		0: 64 << 20, 512 << 20: 64 << 20, 2000 << 20: 100 << 20, 8000 << 20: 400 << 20, 1 << 40: 512 << 20,
	} {
		if got := cacheFor(memory); got != want {
			t.Errorf("with %d MiB of memory the cache has %d MiB, want %d", memory>>20, got>>20, want>>20)
		}
	}
	if memoryBytes() == 0 {
		t.Error("this machine's memory is not known")
	}
}
