package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// growth is the flags of the command growth.
type growth struct {
	options
	axes    [][]int // the values of each of axisNames
	base    point   // the other values, where an axis has its own
	rest    time.Duration
	mongodb string
	to      string
	binary  string
	version string
	machine string
}

// axisNames are the axes along which the cost is measured.
var axisNames = []string{"pending", "buckets", "payload", "nodes"}

// point is what one measurement is of.
type point struct {
	Axis    string `json:"axis"`
	Value   int    `json:"value"` // on the axis
	Run     int    `json:"run"`
	Store   string `json:"store"`
	Pending int    `json:"pending"` // messages
	Buckets int    `json:"buckets"`
	Payload int    `json:"payload"` // bytes
	Nodes   int    `json:"nodes"`
	Inboxes int    `json:"inboxes"`
	Batch   int    `json:"batch"` // messages
	Burst   int    `json:"burst"` // messages
	Rate    int    `json:"rate"`  // messages per second
}

// measured is a point with its figures, as a line of the file of results.
type measured struct {
	point
	Seconds float64 `json:"steadySeconds"`
	Version string  `json:"version"`
	Machine string  `json:"machine"`
	Figures figures `json:"figures"`
}

// The names of the figures that only growth has.
const (
	filledPerS  = "filled_per_s"
	burstCPU    = "burst_cpu_us"  // of the nodes, per message
	steadyCPU   = "steady_cpu_us" // likewise
	burstMongo  = "burst_mongodb_cpu_us"
	steadyMongo = "steady_mongodb_cpu_us"
	memoryEmpty = "memory_empty_bytes"
	memoryFull  = "memory_bytes"
	diskEmpty   = "disk_empty_bytes"
	diskFull    = "disk_bytes"
)

// Bounds of points with large payloads: of what is pending and of a burst, of a batch, and of a
// second of the steady load.
const (
	storedBytesMax = 256 << 20
	batchBytesMax  = 8 << 20
	secondBytesMax = 16 << 20
)

// growthCommand measures how the cost grows.
func growthCommand(ctx context.Context, args []string) error {
	g, err := parseGrowth(args)
	if err != nil {
		return err
	}
	root, err := os.MkdirTemp(g.dir, "postdate-growth-")
	if err != nil {
		return fmt.Errorf("cannot make a temporary folder (-dir names another place): %w", err)
	}
	defer os.RemoveAll(root)
	if g.binary, g.version, err = postdateProgram.prepare(ctx, root); err != nil {
		return err
	}
	g.machine = describeMachine(root)
	to, err := os.OpenFile(g.to, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(g.measureAll(ctx, root, to), to.Close())
}

// parseGrowth reads the flags.
func parseGrowth(args []string) (g growth, err error) {
	clearEnvironment()
	f := flag.NewFlagSet("growth", flag.ExitOnError)
	axes := make([]string, len(axisNames))
	f.StringVar(&axes[0], "pending", "10000,100000,1000000,10000000", "numbers of pending messages, or none")
	f.StringVar(&axes[1], "buckets", "16,64,256,1024,4096", "numbers of buckets, or none")
	f.StringVar(&axes[2], "payload", "100,1024,16384,262144", "sizes of a payload in bytes, or none")
	f.StringVar(&axes[3], "nodes", "1,2,3,5", "numbers of nodes on one MongoDB, or none")
	f.StringVar(&g.mongodb, "mongodb", given["POSTDATE_MONGODB"],
		"address of MongoDB without a database, for -nodes (or POSTDATE_MONGODB)")
	f.StringVar(&g.to, "to", "growth.jsonl", "add the results to this file")
	f.IntVar(&g.base.Pending, "base", 100_000, "pending messages on the other axes")
	f.IntVar(&g.n, "n", 100_000, "messages of a burst")
	f.IntVar(&g.rate, "rate", 1000, "messages per second of the steady load")
	f.DurationVar(&g.duration, "duration", 30*time.Second, "how long the steady load lasts")
	f.DurationVar(&g.rest, "rest", 20*time.Second, "how long the store rests once the pending messages are in it")
	f.IntVar(&g.runs, "runs", 3, "runs of each point; the pictures show their median")
	f.StringVar(&g.dir, "dir", os.TempDir(), "the nodes keep their data in a temporary folder in this one")
	_ = f.Parse(args) // it exits with the error
	for i, values := range axes {
		numbers, err := parseNumbers(values)
		if err != nil {
			return g, fmt.Errorf("-%s: %w", axisNames[i], err)
		}
		g.axes = append(g.axes, numbers)
	}
	switch {
	case f.NArg() > 0:
		return g, fmt.Errorf("there is no argument %q: growth -help lists the flags", f.Arg(0))
	case g.n < 1 || g.rate < 1 || g.runs < 1 || g.base.Pending < 1 || g.duration < 2*time.Second:
		return g, errors.New("-n, -rate, -runs and -base are at least 1, and -duration at least 2s")
	case len(g.axes[3]) > 0 && g.mongodb == "":
		return g, errors.New("-nodes needs MongoDB: name a replica set in -mongodb, like " +
			"mongodb://127.0.0.1:27017/?replicaSet=rs0, or leave the axis out with -nodes none")
	}
	return g, nil
}

// parseNumbers reads numbers of at least one, separated by commas; "none" and "" have none.
func parseNumbers(text string) (numbers []int, err error) {
	if text == "none" || text == "" {
		return nil, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(one)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no number of at least 1: separate numbers by commas, or say none", one)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// points returns all points of one run.
func (g growth) points(run int) (points []point) {
	for i, axis := range axisNames {
		most := 1 // nodes, which have one inbox each: else an inbox is what they wait for
		for _, value := range g.axes[i] {
			p := point{Axis: axis, Value: value, Run: run, Store: "embedded", Pending: g.base.Pending,
				Buckets: 64, Payload: payloadBytes, Nodes: 1, Inboxes: 1, Batch: batchItems, Burst: g.n, Rate: g.rate}
			switch axis {
			case "pending":
				p.Pending = value
			case "buckets":
				p.Buckets = value
			case "payload":
				p.Payload = max(value, 20) // the id
			case "nodes":
				for _, n := range g.axes[i] {
					most = max(most, n)
				}
				p.Nodes, p.Inboxes, p.Store = value, most, "MongoDB"
			}
			points = append(points, p.bounded())
		}
	}
	return points
}

// bounded makes a point with large payloads small enough for one machine.
func (p point) bounded() point {
	if p.Payload > payloadBytes {
		p.Pending = min(p.Pending, storedBytesMax/p.Payload)
		p.Burst = min(p.Burst, storedBytesMax/p.Payload)
		p.Batch = max(1, min(p.Batch, batchBytesMax/p.Payload))
		p.Rate = max(1, min(p.Rate, secondBytesMax/p.Payload))
	}
	return p
}

// measureAll measures all points in turn, and then again.
func (g growth) measureAll(ctx context.Context, root string, to io.Writer) error {
	lines := json.NewEncoder(to)
	failed, all := 0, 0
	for n := range g.runs {
		points := g.points(n + 1)
		for i, p := range points {
			fmt.Fprintf(os.Stderr,
				"%s: %d, point %d of %d, run %d of %d\n", p.Axis, p.Value, i+1, len(points), n+1, g.runs)
			all++
			f, err := g.measure(ctx, root, p)
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			if err != nil {
				failed++
				fmt.Fprintln(os.Stderr, " ", err)
				continue
			}
			for name, v := range f {
				f[name] = math.Round(v*1000) / 1000
			}
			if err := lines.Encode(measured{p, g.duration.Seconds(), g.version, g.machine, f}); err != nil {
				return err
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d measurements failed: the file has none of these", failed, all)
	}
	return nil
}
