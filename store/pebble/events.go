package pebble

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"
	"golang.org/x/time/rate"
)

// damageEvery is how often the log says that a block is damaged. Each read of it fails.
const damageEvery = time.Minute

// listener takes Pebble's events. Without it, a damaged block would end the process each time
// that it is read. With it the node goes on with what it can read, until a table that cannot be
// merged keeps everything from being merged.
func listener(c settings) *lsm.EventListener {
	var stalled, unmerged atomic.Bool // writes wait for merging; the last merge failed on damage
	endIfStuck := func() {
		if stalled.Load() && unmerged.Load() {
			c.fail(fmt.Errorf("a damaged table of the store in %s keeps it from writing: "+
				"restore the directory from a backup", c.Dir))
		}
	}
	said := rate.Sometimes{Interval: damageEvery}
	return &lsm.EventListener{
		WriteStallBegin: func(stall lsm.WriteStallBeginInfo) {
			c.Log.Warn("every write waits: the disk does not keep up", "reason", stall.Reason)
			stalled.Store(stall.Reason == "L0 file count limit exceeded") // else it waits for a flush
			endIfStuck()
		},
		WriteStallEnd: func() { stalled.Store(false) },
		CompactionEnd: func(merge lsm.CompactionInfo) {
			if merge.Err == nil {
				unmerged.Store(false)
			}
		},
		DataCorruption: func(damage lsm.DataCorruptionInfo) {
			said.Do(func() {
				c.Log.Error("a block of the store is damaged, and what needs it fails: stop the node and restore the "+
					"directory from a backup", "file", damage.Path, "error", oneLine(damage.Details))
			})
		},
		BackgroundError: func(err error) {
			if lsm.IsCorruptionError(err) {
				unmerged.Store(true)
				endIfStuck()
				return // DataCorruption has said it
			}
			logger{c}.Errorf("background error: %s", err)
		},
	}
}

// logger takes Pebble's log. Its Fatalf must not return.
type logger struct{ c settings }

func (l logger) Infof(format string, args ...any) {
	l.c.Log.Debug("store: " + fmt.Sprintf(format, args...))
}

func (l logger) Errorf(format string, args ...any) {
	l.c.Log.Warn("store: " + oneLine(fmt.Sprintf(format, args...)))
}

func (l logger) Fatalf(format string, args ...any) {
	// Pebble goes on into undefined states if this returns.
	l.c.fail(errors.New(oneLine(fmt.Sprintf(format, args...))))
}

// oneLine is the first line of what Pebble says: a stack may follow.
func oneLine(said any) string {
	text, _, _ := strings.Cut(fmt.Sprint(said), "\n")
	return text
}
