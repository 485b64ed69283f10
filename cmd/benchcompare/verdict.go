package main

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// labelBase and labelWork name the sides in benchstat's tables.
const (
	labelBase = "base"
	labelWork = "work"
)

// counting are the units whose figures count, the first that both sides have. sec/op is
// benchstat's name for ns/op.
var counting = []string{"cpu-µs/msg", "sec/op"}

// module is what all packages begin with.
const module = "github.com/postdate/postdate/"

// figure is what benchstat says of one unit of one benchmark.
type figure struct {
	folder, name string // of the package; of the benchmark, without Benchmark
	unit         string
	base, work   string // medians; "": this side has none
	change       string // such as +12.34%; ~: not significant
	p            string
}

func (f figure) String() string {
	switch {
	case f.base == "":
		return fmt.Sprintf("%s %s is new", f.folder, f.name)
	case f.work == "":
		return fmt.Sprintf("%s %s is only in the base", f.folder, f.name)
	}
	return fmt.Sprintf("%s %s: %s %s → %s (%s, %s)", f.folder, f.name, f.unit, f.base, f.work, f.change, f.p)
}

// both says whether both sides have it.
func (f figure) both() bool { return f.base != "" && f.work != "" }

func (f figure) sameBenchmark(g figure) bool { return f.folder == g.folder && f.name == g.name }

// read reads the output of benchstat -format csv: tables that begin with lines such as "pkg: x",
// the labels of the sides, and the units.
func read(text string) (figures []figure, err error) {
	r := csv.NewReader(strings.NewReader(text))
	r.FieldsPerRecord = -1
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("benchstat's table: %w", err)
	}
	var folder string
	var labels, units []string
	for _, row := range rows {
		cell := func(header []string, name string) string {
			if i := slices.Index(header, name); i >= 0 && i < len(row) {
				return row[i]
			}
			return ""
		}
		switch {
		case len(row) == 1:
			if pkg, ok := strings.CutPrefix(row[0], "pkg: "); ok {
				folder = strings.TrimPrefix(pkg, module)
			}
		case row[0] == "" && (slices.Contains(row, labelBase) || slices.Contains(row, labelWork)):
			labels = row
		case row[0] == "":
			units = row
		case len(labels) < 2 || len(units) < 2:
			return nil, fmt.Errorf("benchstat's table has %q before a header", row)
		case row[0] != "geomean":
			figures = append(figures, figure{folder, row[0], units[1], cell(labels, labelBase), cell(labels, labelWork),
				cell(units, "vs base"), cell(units, "P")})
		}
	}
	return figures, nil
}

// judged returns the figure of each benchmark that counts. Of one that only one side has, that is any.
func judged(figures []figure) (judged []figure) {
	for _, unit := range counting {
		for _, f := range figures {
			if f.unit == unit && f.both() && !slices.ContainsFunc(judged, f.sameBenchmark) {
				judged = append(judged, f)
			}
		}
	}
	for _, f := range figures {
		if !f.both() && !slices.ContainsFunc(judged, f.sameBenchmark) {
			judged = append(judged, f)
		}
	}
	return judged
}

// alone returns a figure of each benchmark that only one side has.
func alone(figures []figure) []figure {
	return slices.DeleteFunc(judged(figures), figure.both)
}

// worse returns the figures that count and are significantly worse by more than so many percent.
func worse(figures []figure, limit float64) []figure {
	return slices.DeleteFunc(judged(figures), func(f figure) bool {
		percent, err := strconv.ParseFloat(strings.TrimSuffix(f.change, "%"), 64)
		return err != nil || percent <= limit || !f.both()
	})
}
