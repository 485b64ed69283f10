package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// plotCommand draws the results of growth, and prints their medians as tables in Markdown.
func plotCommand(_ context.Context, args []string) error {
	f := flag.NewFlagSet("plot", flag.ExitOnError)
	from := f.String("from", "growth.jsonl", "the file with the results of growth")
	into := f.String("into", ".", "the folder for the pictures")
	_ = f.Parse(args) // it exits with the error
	if f.NArg() > 0 {
		return fmt.Errorf("there is no argument %q: plot -help lists the flags", f.Arg(0))
	}
	file, err := os.Open(*from)
	if err != nil {
		return fmt.Errorf("run growth first, or name the file of its results in -from: %w", err)
	}
	defer file.Close()
	all, err := readMeasured(file)
	if err != nil {
		return fmt.Errorf("%s: %w", *from, err)
	}
	pictures, err := drawAll(all)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(*into, 0o755); err != nil {
		return err
	}
	for axis, picture := range pictures {
		if err := os.WriteFile(filepath.Join(*into, axis+".svg"), picture, 0o644); err != nil {
			return err
		}
	}
	_, err = os.Stdout.WriteString(growthTables(all))
	return err
}

// readMeasured reads the lines of growth.
func readMeasured(r io.Reader) (all []measured, err error) {
	for d := json.NewDecoder(r); ; {
		var one measured
		switch err := d.Decode(&one); err {
		case nil:
			all = append(all, one)
		case io.EOF:
			return all, nil
		default:
			return nil, fmt.Errorf("line %d is no result of growth: %w", len(all)+1, err)
		}
	}
}

// panel is one diagram of a picture.
type panel struct {
	title, unit string
	curves      []curve
}

// curve is a figure over an axis.
type curve struct {
	name  string
	value func(measured) float64
}

func figure(name string) func(measured) float64 {
	return func(m measured) float64 { return m.Figures[name] }
}

// panels are the diagrams of each picture.
var panels = []panel{
	{"Throughput", "messages/s", []curve{
		{"acknowledged, in batches", figure(schedulesPerS)}, {"delivered, all due at once", figure(drainedPerS)}}},
	{"Lateness under the steady load", "ms", []curve{{"p99", figure(lagP99)}, {"p50", figure(lagP50)}}},
	{"Processor time of a message", "µs", []curve{
		{"nodes, steady load", figure(steadyCPU)}, {"nodes, burst", figure(burstCPU)},
		{"MongoDB, steady load", figure(steadyMongo)}, {"MongoDB, burst", figure(burstMongo)}}},
	{"Acknowledgement under the steady load", "ms", []curve{{"p99", figure(callP99)}, {"p50", figure(callP50)}}},
	{"Memory of all nodes", "MiB", []curve{
		{"with the pending messages", func(m measured) float64 { return m.Figures[memoryFull] / (1 << 20) }},
		{"empty", func(m measured) float64 { return m.Figures[memoryEmpty] / (1 << 20) }}}},
	{"Disk of a pending message", "bytes", []curve{{"with indexes and log", diskEach}}},
}

func diskEach(m measured) float64 {
	return (m.Figures[diskFull] - m.Figures[diskEmpty]) / float64(m.Pending)
}

// sample is what was measured at one value of an axis.
type sample struct {
	value int
	runs  []measured
}

// along returns the samples of an axis, in order.
func along(all []measured, axis string) (samples []sample) {
	for _, one := range all {
		if one.Axis != axis {
			continue
		}
		i := slices.IndexFunc(samples, func(s sample) bool { return s.value == one.Value })
		if i < 0 {
			i, samples = len(samples), append(samples, sample{value: one.Value})
		}
		samples[i].runs = append(samples[i].runs, one)
	}
	slices.SortFunc(samples, func(a, b sample) int { return cmp.Compare(a.value, b.value) })
	return samples
}

// values returns a curve's value of each run.
func (s sample) values(c curve) (values []float64) {
	for _, run := range s.runs {
		values = append(values, c.value(run))
	}
	return values
}

// growthTables writes the medians of each axis as a table in Markdown.
func growthTables(all []measured) string {
	b := &strings.Builder{}
	for _, axis := range axisNames {
		samples := along(all, axis)
		if len(samples) == 0 {
			continue
		}
		cells := []string{axisTitle[axis]}
		for _, s := range samples {
			cells = append(cells, axisLabel(axis, s.value))
		}
		fmt.Fprintf(b, "\n## %s\n\n", axis)
		row(b, cells...)
		row(b, slices.Repeat([]string{"---"}, len(cells))...)
		for _, p := range panels {
			for _, c := range p.curves {
				cells := []string{fmt.Sprintf("%s: %s, %s", p.title, c.name, p.unit)}
				there := false
				for _, s := range samples {
					m := median(s.values(c))
					there = there || m != 0
					cells = append(cells, number(m))
				}
				if there {
					row(b, cells...)
				}
			}
		}
	}
	return b.String()
}

// axisTitle is what stands at the axis, with its unit.
var axisTitle = map[string]string{"pending": "messages pending", "buckets": "buckets", "payload": "payload, bytes",
	"nodes": "nodes"}

// axisLabel writes a value of an axis.
func axisLabel(axis string, value int) string {
	if axis == "payload" && value%1024 == 0 {
		return fmt.Sprintf("%d Ki", value/1024)
	}
	return short(float64(value))
}

// short writes 25000 as 25k.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case a >= 1e4:
		return fmt.Sprintf("%gk", v/1e3)
	}
	return fmt.Sprintf("%.4g", v)
}

// drawAll draws a picture for each axis that was measured.
func drawAll(all []measured) (map[string][]byte, error) {
	pictures := map[string][]byte{}
	for _, axis := range axisNames {
		samples := along(all, axis)
		if len(samples) == 0 {
			continue
		}
		var b bytes.Buffer
		if err := drawAxis(&b, axis, samples); err != nil {
			return nil, fmt.Errorf("cannot draw %s: %w", axis, err)
		}
		pictures[axis] = b.Bytes()
	}
	return pictures, nil
}
