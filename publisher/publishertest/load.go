package publishertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/publisher"
)

var names atomic.Int64

// Unique returns a name that no other test uses, for a queue or a topic.
func Unique(what string) string {
	return fmt.Sprintf("%s-%d-%d", what, time.Now().UnixNano(), names.Add(1))
}

// Closing closes a publisher when the test ends.
func Closing[P publisher.Publisher](t *testing.T, p P) P {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

// Batch returns first attempts at n messages of 256 bytes, whose ids begin with prefix.
func Batch(prefix string, n int) []postdate.Delivery {
	batch := deliveries("", prefix, n)
	for _, d := range batch {
		d.Message.Payload, d.Message.ContentType = make([]byte, 256), "application/octet-stream"
	}
	return batch
}

// Load publishes from several callers until it is ended, and records the results.
type Load struct {
	t    *testing.T
	stop chan struct{}
	wg   sync.WaitGroup

	mu       sync.Mutex
	outcomes map[string]publisher.Outcome // by id; every id is published once
	reasons  map[string]bool
	moved    *sync.Cond
}

// NewLoad makes a load without callers: only what is noted counts.
func NewLoad(t *testing.T) *Load {
	l := &Load{t: t, stop: make(chan struct{}), outcomes: map[string]publisher.Outcome{}, reasons: map[string]bool{}}
	l.moved = sync.NewCond(&l.mu)
	return l
}

// StartLoad starts a load, and returns when 500 messages are confirmed.
func StartLoad(t *testing.T, p publisher.Publisher, channel postdate.Channel) *Load {
	t.Helper()
	l := NewLoad(t)
	for caller := range 4 {
		l.wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-l.stop:
					return
				default:
				}
				batch := Batch(fmt.Sprintf("c%d-b%d", caller, n), 50)
				results := p.Publish(context.Background(), channel, batch)
				l.Note(batch, results)
				if results[0].Outcome == publisher.Down {
					time.Sleep(20 * time.Millisecond) // as a caller that parks the channel would
				}
			}
		})
	}
	l.Until(publisher.Confirmed, 500)
	return l
}

// Note records the results of a batch.
func (l *Load) Note(batch []postdate.Delivery, results []publisher.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, r := range results {
		l.outcomes[batch[i].Message.ScheduleID] = r.Outcome
		if r.Reason != "" && len(l.reasons) < 20 {
			l.reasons[r.Reason] = true
			if telling(r.Reason) {
				l.t.Errorf("a result tells an address: %s", r.Reason)
			}
		}
	}
	l.moved.Broadcast()
}

// Until waits for n more results of an outcome.
func (l *Load) Until(o publisher.Outcome, n int) {
	l.t.Helper()
	late := time.AfterFunc(patience, func() { l.mu.Lock(); defer l.mu.Unlock(); l.moved.Broadcast() })
	defer late.Stop()
	start := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for want := l.count(o) + n; l.count(o) < want; l.moved.Wait() {
		if time.Since(start) >= patience {
			l.t.Fatalf("%d results are %v after %s, want %d; reasons: %v", l.count(o), o, patience, want, l.reasons)
		}
	}
}

// Count returns how many messages have had an outcome.
func (l *Load) Count(o publisher.Outcome) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count(o)
}

func (l *Load) count(o publisher.Outcome) (n int) {
	for _, have := range l.outcomes {
		if have == o {
			n++
		}
	}
	return n
}

// End ends the load, and waits for its calls.
func (l *Load) End() { close(l.stop); l.wg.Wait() }

// Account compares an ended load with the ids of what the broker has: confirmed is there once;
// unknown at most once, because nothing was published twice; refused and down are not.
func (l *Load) Account(ids []string) {
	l.t.Helper()
	seen := map[string]int{}
	for _, id := range ids {
		seen[id]++
	}
	for id, o := range l.outcomes {
		switch n := seen[id]; {
		case o == publisher.Confirmed && n != 1:
			l.t.Errorf("%s: %s is confirmed and there %d times", testrun.Broken, id, n)
		case o == publisher.Unknown && n > 1, (o == publisher.Refused || o == publisher.Down) && n > 0:
			l.t.Errorf("%s: %s is %v and there %d times", testrun.Broken, id, o, n)
		}
	}
	var counts []string
	for o := publisher.Confirmed; o <= publisher.Unknown; o++ {
		counts = append(counts, fmt.Sprintf("%d %v", l.Count(o), o))
	}
	l.t.Logf("%s; reasons %v", strings.Join(counts, ", "), l.reasons)
}

// Reasons returns the first reasons that were given.
func (l *Load) Reasons() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.reasons))
}

// AllConfirmed fails the test unless every message of an ended load is confirmed.
func (l *Load) AllConfirmed() {
	l.t.Helper()
	if n := l.Count(publisher.Confirmed); n != len(l.outcomes) {
		l.t.Errorf("%d of %d messages are confirmed: %v", n, len(l.outcomes), l.reasons)
	}
}

// NoneRefused fails the test if messages were refused, for a load with which nothing is wrong.
func (l *Load) NoneRefused() {
	l.t.Helper()
	if n := l.Count(publisher.Refused); n > 0 {
		l.t.Errorf("%d messages are refused, and nothing was wrong with them: %v", n, l.reasons)
	}
}
