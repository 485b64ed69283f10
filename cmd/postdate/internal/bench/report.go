package bench

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/postdate/postdate/internal/testrun"
)

// Report is what was measured.
type Report struct {
	Channel string `json:"channel"`
	Rows    []Row  `json:"rows"`
	// Retries is how many requests were repeated, because there was no answer or the server was
	// overloaded.
	Retries int64 `json:"retries"`
	// NodeMemoryMaxBytes is the node's peak memory; 0: not known.
	NodeMemoryMaxBytes int64 `json:"nodeMemoryMaxBytes,omitempty"`
}

// Row is one phase.
type Row struct {
	Phase     string  `json:"phase"`
	Messages  int     `json:"messages"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"perSecond,omitempty"`
	// Times says what the quantiles measure: "call", from sending a request to its answer, or
	// "late", from a message's due time to its receipt here.
	Times    string    `json:"times"`
	P50Ms    float64   `json:"p50Ms"`
	P99Ms    float64   `json:"p99Ms"`
	P999Ms   float64   `json:"p999Ms"`
	MaxMs    float64   `json:"maxMs"`
	Arrivals *Arrivals `json:"arrivals,omitempty"` // in phases in which messages arrive
	Note     string    `json:"note,omitempty"`
	Node     *Usage    `json:"node,omitempty"` // of the server's process; nil: not known
}

// Usage is the resources that a process uses.
type Usage struct {
	MemoryBytes int64         `json:"memoryBytes"` // resident and private: without mapped files
	DiskBytes   int64         `json:"diskBytes"`   // of its store
	Processor   time.Duration `json:"processorNs"` // in a row: since the row before
}

// Arrivals counts what decides whether the promises were kept.
type Arrivals struct {
	Early              int `json:"early"`
	DuplicatesMarked   int `json:"duplicatesMarked"`
	DuplicatesUnmarked int `json:"duplicatesUnmarked"`
	Lost               int `json:"lost"` // acknowledged, but not received long after its time
}

func (r *Row) finish(messages int, took time.Duration, times *histogram) {
	r.Messages, r.Seconds = messages, took.Seconds()
	if took > 0 {
		r.PerSecond = float64(messages) / took.Seconds()
	}
	r.P50Ms, r.P99Ms = times.quantile(50), times.quantile(99)
	r.P999Ms, r.MaxMs = times.quantile(99.9), times.max()
}

func (r *Row) judge(g *group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.Arrivals = &Arrivals{
		Early: g.early, DuplicatesMarked: g.marked, DuplicatesUnmarked: g.unmarked, Lost: g.size - g.first,
	}
}

// Verdict returns an error if a promise was broken: a message was early, lost, or came twice
// without a mark.
func (r *Report) Verdict() error {
	var sum Arrivals
	for _, row := range r.Rows {
		if a := row.Arrivals; a != nil {
			sum.Early += a.Early
			sum.DuplicatesUnmarked += a.DuplicatesUnmarked
			sum.Lost += a.Lost
		}
	}
	if sum == (Arrivals{}) {
		return nil
	}
	return fmt.Errorf("%s: %d early, %d duplicates without a mark, %d lost",
		testrun.Broken, sum.Early, sum.DuplicatesUnmarked, sum.Lost)
}

// Print writes the report as one table.
func (r *Report) Print(w io.Writer) error {
	width := len("phase")
	for _, row := range r.Rows {
		width = max(width, len(row.Phase))
	}
	p := &printer{w: w}
	p.line("%-*s %10s %9s  %-4s %8s %8s %8s %8s %6s %11s %6s %6s %8s %7s", width, "phase", "messages", "per s",
		"ms", "p50", "p99", "p99.9", "max", "early", "duplicates", "lost", "MiB", "disk MiB", "cpu s")
	for _, row := range r.Rows {
		perSecond, early, duplicates, lost := "-", "-", "-", "-"
		if row.PerSecond > 0 {
			perSecond = fmt.Sprintf("%.0f", row.PerSecond)
		}
		if a := row.Arrivals; a != nil {
			early, lost = strconv.Itoa(a.Early), strconv.Itoa(a.Lost)
			duplicates = fmt.Sprintf("%d+%d", a.DuplicatesMarked, a.DuplicatesUnmarked)
		}
		memory, disk, processor := "-", "-", "-"
		if n := row.Node; n != nil {
			memory, disk = strconv.FormatInt(n.MemoryBytes>>20, 10), strconv.FormatInt(n.DiskBytes>>20, 10)
			processor = strconv.FormatFloat(n.Processor.Seconds(), 'f', 1, 64)
		}
		p.line("%-*s %10d %9s  %-4s %8.1f %8.1f %8.1f %8.1f %6s %11s %6s %6s %8s %7s",
			width, row.Phase, row.Messages, perSecond,
			row.Times, row.P50Ms, row.P99Ms, row.P999Ms, row.MaxMs, early, duplicates, lost, memory, disk, processor)
		if row.Note != "" {
			p.line("  (%s)", row.Note)
		}
	}
	p.line("\nto %s; times in ms: call = request to answer, late = due time to receipt here;", r.Channel)
	p.line("duplicates = marked + unmarked; %d requests were repeated", r.Retries)
	if r.NodeMemoryMaxBytes > 0 {
		p.line("the node took at most %d MiB of memory", r.NodeMemoryMaxBytes>>20)
	}
	return p.err
}

// printer keeps the first error of many lines.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}
