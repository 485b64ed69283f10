package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/postdate/postdate/internal/proctest"
)

// fetched is the path of promtool, which is fetched once.
var fetched = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("bash", "../.ci/promtool")
	var said strings.Builder
	cmd.Stderr = &said
	path, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, said.String())
	}
	return strings.TrimSpace(string(path)), nil
})

// promtool runs Prometheus' own checker, and returns what it says.
func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	if testing.Short() {
		t.Skip("it needs promtool, from a package of the distribution")
	}
	path, err := fetched()
	if err != nil {
		t.Fatal(err)
	}
	proctest.Part(t, "promtool", func() (string, error) {
		said, err := exec.Command(path, "--version").CombinedOutput()
		_, version, _ := strings.Cut(string(said), "version ")
		version, _, _ = strings.Cut(version, " ")
		return "promtool: " + version + ", over the rules, the dashboard and the runbooks", err
	})
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	return string(out), err
}

func TestRulesAreValid(t *testing.T) {
	for _, args := range [][]string{append([]string{"check", "rules"}, ruleFiles...), {"check", "config", "prometheus/prometheus.yml"}} {
		out, err := promtool(t, args...)
		for _, path := range ruleFiles {
			if err != nil || !strings.Contains(out, path) || strings.Contains(out, "duplicate") {
				t.Errorf("promtool %s: %v\n%s", args, err, out)
			}
		}
	}
}

// What the dashboard and the runbooks ask is PromQL: promtool takes it as rules.
func TestQueriesAreValid(t *testing.T) {
	var all []object
	for where, exprs := range asked(t) {
		for i, expr := range exprs {
			all = append(all, object{"record": fmt.Sprint("asked:", i), "expr": expr, "labels": object{"by": where}})
		}
	}
	path := filepath.Join(t.TempDir(), "asked.yaml")
	write(t, path, object{"groups": []object{{"name": "asked", "rules": all}}})
	if out, err := promtool(t, "check", "rules", path); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func write(t *testing.T, path string, v any) {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// testFiles are the files with the tests of rules.
func testFiles(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("prometheus/*.test.yaml")
	if err != nil || len(paths) < len(ruleFiles) {
		t.Fatalf("the tests of rules are %v: %v", paths, err)
	}
	return paths
}

func TestRules(t *testing.T) {
	for _, path := range testFiles(t) {
		if out, err := promtool(t, "test", "rules", path); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// Each alert of each severity is shown to fire, with all its words, and not to fire.
func TestEveryAlertIsTried(t *testing.T) {
	fires, silent := map[string]bool{}, map[string]bool{}
	var known []string
	for _, r := range rules(t) {
		if r.alert != "" {
			known = append(known, r.alert+" "+r.severity)
		}
	}
	for _, path := range testFiles(t) {
		for _, test := range documents(t, path)[0]["tests"].([]any) {
			tried, _ := at(test, "alert_rule_test").([]any)
			for _, try := range tried {
				name, expected := fmt.Sprint(at(try, "alertname")), map[string]bool{}
				for _, a := range at(try, "exp_alerts").([]any) {
					expected[name+" "+fmt.Sprint(at(a, "exp_labels", "severity"))] = true
				}
				for _, alert := range known {
					if alertname, _, _ := strings.Cut(alert, " "); alertname == name {
						fires[alert] = fires[alert] || expected[alert]
						silent[alert] = silent[alert] || !expected[alert]
					}
				}
			}
		}
	}
	for _, alert := range known {
		if !fires[alert] || !silent[alert] {
			t.Errorf("%s: shown to fire %t, and not to fire %t", alert, fires[alert], silent[alert])
		}
	}
}

// plant is a change of rules, with the test that has to notice it, and the test's file.
type plant struct{ file, from, to, test string }

const (
	badMinute = "a bad minute after good hours calls nobody, and a bad half hour does"
	factors   = "parts above and below each factor, in the form of Prometheus 3"
	badDay    = "a bad day with little traffic, after two good ones with much"
	windows   = "the short windows end the alert"
	allFail   = "all messages of a tenant fail for ten minutes"
	noOwner   = "buckets have no owner, for two minutes"
)

func plants() []plant {
	all := []plant{
		{"service-levels", "> on (priority) group_left () 14.4 *", "> on (priority) group_left () 144 *", badMinute},
		{"service-levels", "> on (priority) group_left () 14.4 *", "> on (priority) group_left () 12 *", badMinute},
		{"service-levels", "> on (priority) group_left () 6 *", "> on (priority) group_left () 60 *", factors},
		{"service-levels", "> on (priority) group_left () 6 *", "> on (priority) group_left () 4 *", factors},
		{"service-levels.days", "> on (priority) group_left () 3 *", "> on (priority) group_left () 6 *", badDay},
		{"service-levels", "> on () group_left () 14.4 *", "> on () group_left () 200 *", allFail},
		{"service-levels", "> on () group_left () 6 *", "> on () group_left () 200 *", allFail},
		{"service-levels.days", "> on () group_left () 3 *", "> on () group_left () 6 *", badDay},
		{"service-levels", "> 14.4 *", "> 144 *", badMinute},
		{"service-levels", "> 6 *", "> 10 *", "requests fail, first 2 % and then 0.8 %"},
		{"service-levels.days", "> 3 *", "> 6 *", badDay},
		{"service-levels", "and tenant_priority:postdate_deliveries_late:ratio_rate5m", "and tenant_priority:postdate_deliveries_late:ratio_rate1h", windows},
		{"service-levels.days", "and tenant_priority:postdate_deliveries_late:ratio_rate2h", "and tenant_priority:postdate_deliveries_late:ratio_rate1d", badDay},
		{"service-levels", "and tenant_priority:postdate_deliveries_late:ratio_rate6h", "and tenant_priority:postdate_deliveries_late:ratio_rate3d", windows},
		{"service-levels", `le=~"1|1.0"`, `le="1"`, factors},
		{"service-levels", "vector(0.01)", "vector(0.001)", "2 % are late, on two nodes together, one of which is restarted"},
		{"service-levels", `route!~"/healthz|/readyz|/metrics",`, "", "nodes that are not ready, and probes of them, are no failures of requests"},
		{"service-levels", "postdate_deliveries:total[5m])) > 0)", "postdate_deliveries:total[5m])))", "nobody has messages, or makes requests"},
		{"postdate", "max(postdate_overdue_seconds) > 10", "max(postdate_overdue_seconds) > 11", "messages are overdue, for a minute"},
		{"postdate", "max(postdate_overdue_seconds) > 10", "max(postdate_overdue_seconds) >= 10", "messages are overdue, for a minute"},
		{"postdate", "sum(postdate_buckets_held)", "max(postdate_buckets_held)", noOwner},
		{"postdate", "sum(postdate_buckets_held) < max(postdate_buckets)", "sum(postdate_buckets_held) == 0", noOwner},
		{"postdate", "for: 2m", "for: 1m", noOwner},
		{"postdate", "for: 2m", "for: 0m", "buckets move, a node dies and another takes its buckets, and then no node answers"},
		{"postdate", "for: 5m", "for: 3m", "channels are down, for five minutes"},
	}
	for _, level := range []string{"deliveries_late", "deliveries_failed", "requests_failed"} {
		for _, window := range []string{"1h", "6h", "1d", "3d"} {
			floor := "postdate_" + level + ":total[" + window + "])) >= 1"
			all = append(all, plant{"service-levels", floor + "0", floor, "one of three is late, and nine of nine"})
		}
	}
	return all
}

// The tests of the rules can fail: each of these changes makes one fail.
func TestRuleTestsBite(t *testing.T) {
	for _, p := range plants() {
		t.Run(p.from+" "+p.to, func(t *testing.T) {
			t.Parallel()
			of, _, _ := strings.Cut(p.file, ".")
			name, dir := of+".rules.yaml", t.TempDir()
			text, err := os.ReadFile("prometheus/" + name)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), p.from) {
				t.Fatalf("%s does not have %q", name, p.from)
			}
			file := documents(t, "prometheus/"+p.file+".test.yaml")[0]
			var one []any
			for _, test := range file["tests"].([]any) {
				if at(test, "name") == p.test {
					one = append(one, test)
				}
			}
			file["tests"] = one
			write(t, filepath.Join(dir, "one.yaml"), file)
			planted := strings.ReplaceAll(string(text), p.from, p.to)
			if err := os.WriteFile(filepath.Join(dir, name), []byte(planted), 0o644); err != nil {
				t.Fatal(err)
			}
			// A case fails, and not the file.
			out, err := promtool(t, "test", "rules", filepath.Join(dir, "one.yaml"))
			if err == nil || !strings.Contains(out, "exp:") || len(one) != 1 {
				t.Errorf("%d tests named %q notice nothing: %v\n%s", len(one), p.test, err, out)
			}
		})
	}
}
