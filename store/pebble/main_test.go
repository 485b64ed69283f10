package pebble

import (
	"os"
	"testing"
)

// The store's own tests write to the disk, also where those of other packages write to memory.
func TestMain(m *testing.M) {
	if disk := os.Getenv("POSTDATE_TEST_DISK"); disk != "" {
		os.Setenv("TMPDIR", disk)
	}
	m.Run()
}
