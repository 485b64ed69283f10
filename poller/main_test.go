package poller

import (
	"runtime/debug"
	"testing"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a shop makes much garbage, and keeps little
	m.Run()
}
