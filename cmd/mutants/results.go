package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// What becomes of a mutant.
const (
	killedByTests  = "killed by tests"
	killedByWorlds = "killed by the simulator"
	lived          = "lives"
)

// result is what became of a mutant: one line of a file of results.
type result struct {
	mutant
	Result    string
	By        string // what killed it
	InTests   bool   // the tests of its package reach it
	InWorlds  bool   // the simulator does
	SameTrace bool   // the simulator did the same with it, event for event
	Seconds   float64
}

func (r result) String() string {
	text := fmt.Sprintf("%s (%s): %s", r.Result, r.Operator, r.Name())
	switch {
	case r.By != "":
		text += ": " + r.By
	case !r.InTests && !r.InWorlds:
		text += ": reached by nothing"
	case r.SameTrace:
		text += ": the same trace"
	}
	return text
}

// file is where the results of a package are kept, for this state of the sources.
func (b *bench) file(dir string) string {
	return filepath.Join(b.f.cache, strings.ReplaceAll(dir, "/", "-")+"-"+b.trees[dir]+".jsonl")
}

// load reads the results that are there, by the mutants' names.
func (b *bench) load() (map[string]result, error) {
	results := map[string]result{}
	for _, dir := range b.dirs {
		f, err := os.Open(b.file(dir))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			var r result
			if json.Unmarshal(lines.Bytes(), &r) == nil { // the last line may be cut off
				results[r.Name()] = r
			}
		}
		f.Close()
	}
	return results, nil
}

// keep appends a result to its package's file.
func (b *bench) keep(r result) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.f.cache, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(b.file(r.Package), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	// The line before may have been cut off by a crash.
	if _, err = f.Write(slices.Concat([]byte("\n"), line, []byte("\n"))); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// report prints what became of the mutants, and says how many live that are not known.
func report(mutants []mutant, results map[string]result, known items) (unknown int) {
	type count struct{ all, tests, worlds, lived, named, missed, left int }
	counts := map[string]*count{}
	var total count
	for _, m := range mutants {
		if counts[m.Package] == nil {
			counts[m.Package] = &count{}
		}
		r := results[m.Name()]
		for _, c := range []*count{counts[m.Package], &total} {
			c.all++
			switch r.Result {
			case "":
				c.left++
				continue
			case killedByTests:
				c.tests++
			case killedByWorlds:
				c.worlds++
			case lived:
				c.lived++
				if known.name(m) {
					c.named++
				}
			}
			if !r.InTests {
				c.missed++
			}
		}
	}
	fmt.Printf("\n%-14s %8s %8s %8s %9s %8s %8s %9s\n", "", "", "killed", "killed by", "", "", "of those", "not in")
	fmt.Printf("%-14s %8s %8s %8s %9s %8s %8s %9s\n",
		"package", "mutants", "by tests", "simulator", "killed", "live", "named", "any test")
	row := func(name string, c count) {
		tried := c.all - c.left
		fmt.Printf("%-14s %8d %8d %9d %7.1f %% %8d %8d %9d", name, c.all, c.tests, c.worlds,
			100*float64(c.tests+c.worlds)/float64(max(tried, 1)), c.lived, c.named, c.missed)
		if c.left > 0 {
			fmt.Printf("  (%d not tried)", c.left)
		}
		fmt.Println()
	}
	for _, dir := range slices.Sorted(maps.Keys(counts)) {
		row(dir, *counts[dir])
	}
	row("all", total)
	for _, m := range mutants {
		switch r := results[m.Name()]; {
		case r.Result == lived && !known.name(m):
			if unknown++; unknown == 1 {
				fmt.Printf("\nThese live, and %s does not name them:\n", document)
			}
			fmt.Println("-", m.Name())
		case r.Result != "" && r.Result != lived && known.name(m):
			fmt.Printf("%s names one that does not live any more: %s\n", document, m.Name())
		}
	}
	return unknown
}
