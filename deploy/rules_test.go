package deploy_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/poller"
)

// rule is one of a file for Prometheus: it records a series, or is an alert.
type rule struct {
	record, alert, severity, priority, expr string
	annotations                             object
}

var ruleFiles = []string{"prometheus/postdate.rules.yaml", "prometheus/service-levels.rules.yaml"}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	text := func(v any) string { s, _ := v.(string); return s }
	for _, path := range ruleFiles {
		for _, g := range documents(t, path)[0]["groups"].([]any) {
			for _, r := range at(g, "rules").([]any) {
				all = append(all, rule{
					record: text(at(r, "record")), alert: text(at(r, "alert")), severity: text(at(r, "labels", "severity")),
					priority: text(at(r, "labels", "priority")),
					expr:     text(at(r, "expr")), annotations: object1(at(r, "annotations")),
				})
			}
		}
	}
	if len(all) < 20 {
		t.Fatalf("%v have %d rules", ruleFiles, len(all))
	}
	return all
}

// panelExprs are the expressions of the dashboard.
func panelExprs(t *testing.T) (all []string) {
	t.Helper()
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	text, err := os.ReadFile("grafana/postdate.json")
	if err == nil {
		err = json.Unmarshal(text, &dashboard)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all = append(all, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
		}
	}
	return all
}

var query = regexp.MustCompile("(?s)```promql\n(.*?)```")

// runbooks are the pages of docs/runbooks, by their names.
func runbooks(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	paths, err := filepath.Glob("../docs/runbooks/*.md")
	if err != nil || len(paths) == 0 {
		t.Fatalf("docs/runbooks has no pages: %v", err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pages[filepath.Base(path)] = string(text)
	}
	return pages
}

// asked are the expressions of rules, panels and runbooks, by the place that has them.
func asked(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{"the dashboard": panelExprs(t)}
	for _, r := range rules(t) {
		all["a rule"] = append(all["a rule"], r.expr)
	}
	for name, page := range runbooks(t) {
		for _, m := range query.FindAllStringSubmatch(page, -1) {
			all[name] = append(all[name], strings.TrimSpace(m[1]))
		}
	}
	return all
}

var (
	metricName   = regexp.MustCompile(`\bpostdate_[a-z0-9_]+`)
	recordedName = regexp.MustCompile(`\b[a-z_]+:[a-z0-9_]+:[a-z0-9_]+`)
	ofHistogram  = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// Alerts and dashboards show nothing, without a word, where a metric was renamed, or nothing records a
// series. What is recorded and not asked for only costs.
func TestMetricsExist(t *testing.T) {
	exists, recorded, used := map[string]bool{}, map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range metricName.FindAllString(string(text), -1) {
			exists[name] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules(t) {
		if r.record != "" {
			recorded[r.record] = true
		}
	}
	for where, exprs := range asked(t) {
		for _, expr := range exprs {
			for _, name := range recordedName.FindAllString(expr, -1) {
				if used[name] = true; !recorded[name] {
					t.Errorf("%s asks for %s, which no rule records", where, name)
				}
			}
			for _, name := range metricName.FindAllString(recordedName.ReplaceAllString(expr, ""), -1) {
				if !exists[name] && !exists[ofHistogram.ReplaceAllString(name, "")] {
					t.Errorf("%s asks for %s, which does not exist", where, name)
				}
			}
		}
	}
	for name := range recorded {
		if !used[name] {
			t.Errorf("%s is recorded, and nothing asks for it", name)
		}
		if !recordedName.MatchString(name) {
			t.Errorf("%s is not of the form level:metric:operations", name)
		}
	}
}

var limit = regexp.MustCompile(`postdate_priority_lateness_seconds_bucket\{priority="([a-z]+)",le=~"([0-9]+)\|([0-9]+)\.0"\}`)

// limits are those of the service levels, in seconds, by priority.
func limits(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, r := range rules(t) {
		for _, m := range limit.FindAllStringSubmatch(r.expr, -1) {
			if _, twice := found[m[1]]; twice || m[2] != m[3] {
				t.Errorf("the limit of %s stands in the rules twice, or in two ways", m[1])
			}
			found[m[1]] = m[2]
		}
	}
	return found
}

// A level on a bucket that the histogram does not have counts nothing as late. Each priority has one.
func TestLimitsOfLatenessAreBuckets(t *testing.T) {
	registry := prometheus.NewRegistry()
	poller.NewMetrics(registry)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	buckets := map[string]bool{}
	for _, f := range families {
		if f.GetName() == "postdate_priority_lateness_seconds" {
			for _, b := range f.Metric[0].GetHistogram().GetBucket() {
				buckets[fmt.Sprintf("%g", b.GetUpperBound())] = true
			}
		}
	}
	found := limits(t)
	for _, p := range postdate.Priorities() {
		if seconds := found[p.String()]; !buckets[seconds] {
			t.Errorf("the limit of %s is %q s, and the buckets are %v", p, seconds, slices.Sorted(maps.Keys(buckets)))
		}
	}
	if len(found) != len(postdate.Priorities()) {
		t.Errorf("the limits are %v", found)
	}
}

// The operator's document says the limits and targets that the rules have.
func TestServiceLevelsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	found, rows := limits(t), 0
	for _, r := range rules(t) {
		metric, budget := strings.CutSuffix(r.record, ":budget")
		if !budget {
			continue
		}
		var part float64
		if _, err := fmt.Sscanf(r.expr, "vector(%g)", &part); err != nil {
			t.Fatalf("%v: %v", r, err)
		}
		row := fmt.Sprintf("| %.4g %% |", 100*(1-part))
		switch metric {
		case "priority:postdate_deliveries_late":
			row = fmt.Sprintf("| messages of priority %s are delivered within %s s %s", r.priority, found[r.priority], row)
		case "cluster:postdate_deliveries_failed":
			row = "| messages do not end as DELIVERY_FAILED " + row
		case "cluster:postdate_requests_failed":
			row = "| requests are not answered with 5xx " + row
		default:
			t.Errorf("no row is known for %s", metric)
		}
		if rows++; !strings.Contains(string(text), "\n"+row) {
			t.Errorf("docs/operations.md has no row %s", row)
		}
	}
	if rows != len(postdate.Priorities())+2 {
		t.Errorf("%d targets", rows)
	}
}

// pair is two windows of an alert, as the rules write it.
var pair = regexp.MustCompile(`ratio_rate(\w+)\s+> (?:on \(\w*\) group_left \(\) )?(?:([0-9.]+) \* )?\S+:budget\s+` +
	`and \S+:ratio_rate(\w+)\s+> (?:on \(\w*\) group_left \(\) )?(?:([0-9.]+) \* )?\S+:budget\s+` +
	`and sum(?: by \([a-z, ]+\) )?\(increase\(\S+:total\[(\w+)\]\)\) >= 10\s`)

// All levels have the factors and windows of the runbooks' table: those of one severity in one alert, but that
// nobody is called for messages that fail.
func TestBurnRatesAreDocumented(t *testing.T) {
	index := runbooks(t)["README.md"]
	shown := func(window string) string {
		return window[:len(window)-1] + map[byte]string{'m': " min", 'h': " h", 'd': " d"}[window[len(window)-1]]
	}
	pairs := map[string][]string{}
	for _, r := range rules(t) {
		if r.alert == "" || !strings.Contains(r.expr, ":budget") {
			continue
		}
		for _, m := range pair.FindAllStringSubmatch(r.expr+" ", -1) {
			factor := cmp.Or(m[2], "1")
			if m[4] != m[2] || m[5] != m[1] {
				t.Errorf("%s compares with different factors, or counts over another window: %q", r.alert, m)
			}
			row := fmt.Sprintf("| %s | %s | %s |", factor, shown(m[1]), shown(m[3]))
			if !strings.Contains(index, row) {
				t.Errorf("docs/runbooks/README.md has no row with %s", row)
			}
			pairs[r.alert+" "+r.severity] = append(pairs[r.alert+" "+r.severity], factor)
		}
	}
	fast, slow := []string{"14.4", "6"}, []string{"3", "1"}
	want := map[string][]string{
		"PostdateDeliveriesLate critical": fast, "PostdateDeliveriesLate warning": slow,
		"PostdateRequestsFail critical": fast, "PostdateRequestsFail warning": slow,
		"PostdateDeliveriesFail warning": append(fast, slow...),
	}
	if !maps.EqualFunc(pairs, want, slices.Equal) {
		t.Errorf("the factors are %v, want %v", pairs, want)
	}
}

const pages = "https://github.com/postdate/postdate/blob/main/docs/runbooks/"

// Each alert says what it is about, and has a page that says what to do. Commands on the pages exist.
func TestEveryAlertHasARunbook(t *testing.T) {
	books := runbooks(t)
	index := books["README.md"]
	delete(books, "README.md")
	alerts := map[string]bool{}
	for _, r := range rules(t) {
		if r.alert == "" {
			continue
		}
		alerts[r.alert+".md"] = true
		if r.annotations["summary"] == nil || r.annotations["description"] == nil || r.severity == "" {
			t.Errorf("%s lacks a summary, a description or a severity", r.alert)
		}
		if url := r.annotations["runbook_url"]; url != pages+r.alert+".md" {
			t.Errorf("%s has the runbook %v", r.alert, url)
		}
		if !strings.Contains(index, "| ["+r.alert+"]("+r.alert+".md) | ") {
			t.Errorf("docs/runbooks/README.md does not list %s", r.alert)
		}
	}
	command := regexp.MustCompile("(?m)(?:`|^)postdate ([a-z-]+)")
	headings := regexp.MustCompile(`(?m)^#+ .*$`)
	for name, page := range books {
		want := []string{"# " + strings.TrimSuffix(name, ".md"), "## What it means", "## What to look at", "## What to do"}
		if got := headings.FindAllString(page, -1); !slices.Equal(got, want) {
			t.Errorf("%s has the headings %q", name, got)
		}
		for _, m := range command.FindAllStringSubmatch(page, -1) {
			checkCommand(t, name, []string{m[1]})
		}
	}
	for name := range alerts {
		if books[name] == "" {
			t.Errorf("docs/runbooks/%s is not there", name)
		}
		delete(books, name)
	}
	for name := range books {
		t.Errorf("docs/runbooks/%s is about no alert", name)
	}
}
