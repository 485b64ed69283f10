package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// result is one run of a workload with a peer, as it is printed.
type result struct {
	Peer     string  `json:"peer"`
	Workload string  `json:"workload"`
	Load     string  `json:"load"`
	Run      int     `json:"run"`
	Synced   string  `json:"synced"`
	Settings string  `json:"settings"`
	Machine  string  `json:"machine"`
	Figures  figures `json:"figures,omitempty"`
	Err      string  `json:"error,omitempty"`

	cannot bool // the peer has no call for it, which is no failure
}

// jsonLines returns what prints each result as one line.
func jsonLines(w io.Writer) func(result) error {
	e := json.NewEncoder(w)
	return func(r result) error { return e.Encode(r) }
}

// report is all results.
type report struct {
	machine string
	leftOut []string
	results []result
}

// failures returns an error if a run failed.
func (r *report) failures() error {
	failed := 0
	for _, one := range r.results {
		if one.Err != "" && !one.cannot {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d runs failed", failed, len(r.results))
	}
	return nil
}

// writeTable writes the settings, and a table for each workload.
func (r *report) writeTable(w io.Writer) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "Machine: %s. Payload: %d bytes. Each figure is the median of its runs.\n", r.machine, payloadBytes)
	for _, peer := range r.leftOut {
		fmt.Fprintf(b, "\nLeft out: %s\n", peer)
	}
	b.WriteString("\n")
	row(b, "peer", "settings", "synced")
	row(b, "---", "---", "---")
	var told []string
	for _, one := range r.results {
		if !slices.Contains(told, one.Peer) {
			told = append(told, one.Peer)
			row(b, one.Peer, one.Settings, one.Synced)
		}
	}
	for _, l := range workloads {
		r.writeWorkload(b, l)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *report) writeWorkload(b *strings.Builder, l workload) {
	of := map[string][]result{} // by peer
	var peers []string
	for _, one := range r.results {
		if one.Workload == l.name {
			if of[one.Peer] == nil {
				peers = append(peers, one.Peer)
			}
			of[one.Peer] = append(of[one.Peer], one)
		}
	}
	if len(peers) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n%s.\n\n", l.name, of[peers[0]][0].Load)
	row(b, slices.Concat([]string{"peer", "synced"}, l.columns, []string{"spread"})...)
	row(b, slices.Repeat([]string{"---"}, len(l.columns)+3)...)
	for _, peer := range peers {
		runs := of[peer]
		cells := []string{peer, runs[0].Synced}
		if err := firstError(runs); err != nil {
			cells = append(cells, err.Error())
			row(b, append(cells, slices.Repeat([]string{""}, len(l.columns))...)...)
			continue
		}
		for _, name := range l.columns {
			cells = append(cells, number(median(valuesOf(runs, name))))
		}
		row(b, append(cells, spread(valuesOf(runs, l.columns[0])))...)
	}
}

func firstError(runs []result) error {
	for _, one := range runs {
		if one.Err != "" && !one.cannot {
			return errors.New("failed: " + one.Err)
		}
		if one.Err != "" {
			return errors.New(one.Err)
		}
	}
	return nil
}

// row writes one line of a table.
func row(b *strings.Builder, cells ...string) {
	for i, c := range cells {
		cells[i] = strings.NewReplacer("|", `\|`, "\n", " ").Replace(c)
	}
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}

func valuesOf(runs []result, name string) (values []float64) {
	for _, one := range runs {
		values = append(values, one.Figures[name])
	}
	return values
}

// median returns the middle value, or the mean of the two in the middle.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// spread says how far the runs lie apart, in percent of their median; "": there is one run.
func spread(values []float64) string {
	if len(values) < 2 {
		return ""
	}
	m := median(values)
	if m == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.0f %%", 100*(slices.Max(values)-slices.Min(values))/m)
}

// number writes a figure with about three digits, or as a whole number.
func number(v float64) string {
	switch {
	case v >= 100 || v == float64(int(v)):
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
