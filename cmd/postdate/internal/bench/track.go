package bench

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// histogram records durations in microseconds up to an hour, to three digits.
type histogram struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

func newHistogram() *histogram {
	return &histogram{h: hdrhistogram.New(1, time.Hour.Microseconds(), 3)}
}

func (h *histogram) record(d time.Duration) {
	micros := min(max(d.Microseconds(), 0), time.Hour.Microseconds())
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.h.RecordValue(micros); err != nil {
		panic(err) // micros is in range
	}
}

// quantile returns milliseconds; q is in percent.
func (h *histogram) quantile(q float64) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return float64(h.h.ValueAtQuantile(q)) / 1000
}

func (h *histogram) max() float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return float64(h.h.Max()) / 1000
}

// group is the messages of one phase, numbered from 0. An id is the group's prefix and a
// number, so ids need not be stored.
type group struct {
	prefix string
	size   int
	late   *histogram

	mu       sync.Mutex
	due      []int64 // Unix milliseconds; written before the message is sent
	seen     []seen
	first    int        // how many have arrived at least once
	lately   *histogram // the lateness of first copies since the last call of stretch
	before   int        // the value of first at that call
	latest   time.Time
	early    int
	marked   int // further copies, marked as possible duplicates
	unmarked int // further copies without the mark
}

// seen says which copies of a message have arrived.
type seen uint8

const (
	seenOnce seen = 1 << iota
	seenMarked
)

// group makes a group whose arrivals are tracked.
func (r *run) group(name string, size int) *group {
	g := &group{
		prefix: r.name + "-" + name + "-", size: size, late: newHistogram(), lately: newHistogram(),
		due: make([]int64, size), seen: make([]seen, size),
	}
	r.tracker.add(g)
	return g
}

func (g *group) id(i int) string { return g.prefix + strconv.Itoa(i) }

// expect sets when i is due: at, rounded up to the millisecond.
func (g *group) expect(i int, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.due[i] = at.Add(time.Millisecond - 1).UnixMilli()
}

func (g *group) dueAt(i int) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.UnixMilli(g.due[i])
}

// receipt is a message as a consumer received it.
type receipt struct {
	id                string
	at                time.Time
	possibleDuplicate bool
}

func (g *group) receive(i int, r receipt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	late := r.at.Sub(time.UnixMilli(g.due[i]))
	if late < 0 {
		g.early++
	}
	before := g.seen[i]
	g.seen[i] |= seenOnce
	if r.possibleDuplicate {
		g.seen[i] |= seenMarked
	}
	switch {
	case before == 0:
		g.first++
		g.latest = r.at
		g.late.record(late)
		g.lately.record(late)
	case g.seen[i]&seenMarked != 0:
		g.marked++
	default:
		g.unmarked++
	}
}

// stretch returns how many messages have arrived since its last call, and how late.
func (g *group) stretch() (arrived int, late *histogram) {
	g.mu.Lock()
	defer g.mu.Unlock()
	arrived, late = g.first-g.before, g.lately
	g.before, g.lately = g.first, newHistogram()
	return arrived, late
}

// received returns how many messages have arrived.
func (g *group) received() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.first
}

func (g *group) progress() (complete bool, latest time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.first == g.size, g.latest
}

// tracker finds the group of each message that arrives. It ignores messages of other runs.
type tracker struct {
	mu     sync.Mutex
	groups []*group
}

func (t *tracker) add(g *group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.groups = append(t.groups, g)
}

func (t *tracker) receive(r receipt) {
	t.mu.Lock()
	groups := t.groups
	t.mu.Unlock()
	for _, g := range groups {
		number, ok := strings.CutPrefix(r.id, g.prefix)
		if !ok {
			continue
		}
		if i, err := strconv.Atoi(number); err == nil && i >= 0 && i < g.size {
			g.receive(i, r)
		}
		return
	}
}
