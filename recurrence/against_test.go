package recurrence_test

import (
	"archive/zip"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/recurrence"
)

// rules are those that are held against the oracle.
var rules = strings.Split(`30 2 * * *
0 2 * * *
0 3 * * *
0 0 * * *
15 1,2,3 * * *
*/7 1-3 * * *
59 23 * * *
30 0 * * *
0 12 * * *
* 2 * * *
0 0 1 * *
0 4 29 2 *
*/20 * 1-2 * * *
* 59 1 * * *
30 30 2 * * *
59 59 23 * * *
0 0/5 0,23 * * *
*/30 * * * *
@hourly
15 */2 * * *
5 0-23 * * *
*/40 */11 */3 * * *
0,30 * 31 * *
10 ? * * ?
@daily
@midnight
@weekly
@monthly
@yearly
30 2 * * SUN
30 2 * * 7
30 1 25-31 * SUN
0 3 */2 * MON
0 3 1-7 * MON-FRI
0 0 * MAR,APR,SEP-NOV SAT
45 1 13 * FRI
20 2 * 3,10,11 0,6
0 */6 * * *
7 5/6 * * *
0 22-2 * * FRI-MON
*/9 23-4/2 28-3 NOV-APR *
0 4 1-7/3 * MON-FRI/2
30 */2 * * *
*/15 0-22 * * *
0 23,0,1,2 * * 4-6`, "\n")

type options struct {
	gap     postdate.Gap
	overlap postdate.Overlap
}

var allOptions = []options{{}, {postdate.GapSkip, postdate.OverlapSecond}, {postdate.GapAfter, postdate.OverlapBoth},
	{postdate.GapAfter, postdate.OverlapFirst}}

// around is how much of each transition is looked at, on either side.
const around = 26 * 60 * 60

// TestAgainstTheOracle compares what rules say with an oracle that looks at every second, around
// transitions of the world's time zones. It plays a sample. With POSTDATE_ORACLE=all it plays all
// transitions from 2000 to 2100 of all zones, once where several share a clock.
func TestAgainstTheOracle(t *testing.T) {
	random := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	names := zoneNames(t)
	all := os.Getenv("POSTDATE_ORACLE") == "all"
	if !all {
		random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		names = names[:10]
	}
	zones := differing(t, names)
	type place struct {
		zone string
		at   int64
	}
	var places []place
	for zone, transitions := range zones {
		for _, at := range transitions {
			places = append(places, place{zone, at})
		}
		for _, year := range []int{2040, 2096} { // see spanAt
			places = append(places, place{zone, time.Date(year, 12, 31, 12, 0, 0, 0, time.UTC).Unix()})
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		if a.zone != b.zone {
			return strings.Compare(a.zone, b.zone)
		}
		return int(a.at - b.at)
	})
	if !all {
		random.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
		places = places[:min(len(places), 6)]
	}
	var wait sync.WaitGroup
	var mu sync.Mutex
	compared, next := 0, 0
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(places) || t.Failed() {
					return
				}
				n := compare(t, places[i].zone, places[i].at)
				mu.Lock()
				compared += n
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	t.Logf("%d zones, %d transitions, %d rules with %d choices each: %d occurrences", len(zones), len(places), len(rules),
		len(allOptions), compared)
}

// compare holds all rules against the oracle around one transition.
func compare(t *testing.T, name string, transition int64) (compared int) {
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Error(err)
		return 0
	}
	from, to := transition-around, transition+around
	w := look(zone, from, to)
	for _, cron := range rules {
		f := read(cron)
		moments := w.moments(f)
		for _, o := range allOptions {
			rule, err := recurrence.Parse(postdate.Recurrence{Cron: cron, Timezone: name, Gap: o.gap, Overlap: o.overlap}, 1)
			if err != nil {
				t.Error(err)
				return compared
			}
			want := f.occurrences(moments, o.gap, o.overlap)
			got, fault := occurrences(rule, from, to)
			if fault == "" && !slices.Equal(got, want) {
				fault = difference(got, want, zone)
			}
			if fault == "" {
				fault = miscounted(rule, want, transition)
			}
			if fault != "" {
				t.Errorf("%s at %s, %q, gap %d, overlap %d: %s", name, time.Unix(transition, 0).UTC(), cron, o.gap, o.overlap, fault)
				return compared
			}
			compared += len(want)
		}
	}
	return compared
}

// occurrences are those of a rule at or after one second and before another, and what is wrong with them.
func occurrences(rule *recurrence.Rule, from, to int64) (all []int64, fault string) {
	for at := postdate.Time(from*1000 - 1); ; {
		next, ok := rule.After(at)
		if !ok || int64(next) >= to*1000 {
			break
		}
		if next <= at || next%1000 != 0 {
			return nil, fmt.Sprintf("%s follows %s", next, at)
		}
		all = append(all, int64(next)/1000)
		at = next
	}
	if n := rule.Count(postdate.Time(from*1000), postdate.Time(to*1000)); n != int64(len(all)) {
		return nil, fmt.Sprintf("%d are counted, %d were found", n, len(all))
	}
	return all, ""
}

// miscounted holds Count against the occurrences around a transition, in ranges that begin or end close to
// it. It says what is wrong, if anything is.
func miscounted(rule *recurrence.Rule, all []int64, transition int64) string {
	random := rand.New(rand.NewPCG(uint64(transition), uint64(len(all))))
	before := func(t postdate.Time) int64 {
		return int64(sort.Search(len(all), func(i int) bool { return postdate.Time(all[i]*1000) >= t }))
	}
	near := func() postdate.Time { return postdate.Time(transition*1000 + random.Int64N(8*3_600_000) - 4*3_600_000) }
	for range 10 {
		from, to := near(), near()
		if n := rule.Count(from, to); n != max(0, before(to)-before(from)) {
			return fmt.Sprintf("%d are counted from %s to %s, want %d", n, from, to, max(0, before(to)-before(from)))
		}
	}
	return ""
}

func difference(got, want []int64, zone *time.Location) string {
	show := func(what string, list, other []int64) (s string) {
		for _, second := range list {
			if !slices.Contains(other, second) && len(s) < 200 {
				s += " " + what + time.Unix(second, 0).In(zone).Format(time.RFC3339)
			}
		}
		return s
	}
	return show("missing ", want, got) + show("too many ", got, want)
}

// differing are the transitions from 2000 to 2100 of the named zones; of those with the same ones, one.
func differing(t *testing.T, names []string) map[string][]int64 {
	zones, seen := map[string][]int64{}, map[string]bool{}
	for _, name := range names {
		zone, err := time.LoadLocation(name)
		if err != nil {
			continue // the system's data may be older than Go's
		}
		transitions, is := transitionsOf(zone)
		if !seen[is] {
			seen[is] = true
			zones[name] = transitions
		}
	}
	return zones
}

// transitionsOf are the seconds from 2000 to 2100 at which a zone's clock is set, and a text that is the
// same for zones with the same clock. It looks at every third hour.
func transitionsOf(zone *time.Location) (transitions []int64, is string) {
	offset := func(second int64) int {
		_, offset := time.Unix(second, 0).In(zone).Zone()
		return offset
	}
	const step = 3 * 60 * 60
	at := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	to := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	is = fmt.Sprint(offset(at))
	for ; at < to; at += step {
		if offset(at+step) == offset(at) {
			continue
		}
		after := sort.Search(step, func(i int) bool { return offset(at+int64(i)) != offset(at) })
		transitions = append(transitions, at+int64(after))
		is += fmt.Sprint(" ", at+int64(after), offset(at+step))
	}
	return transitions, is
}

// ownData is the data of time zones that Go has with it, and that is in binaries.
var ownData = func() string {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		panic(err)
	}
	return filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip")
}()

// TestMain has package time read that data, unless ZONEINFO says otherwise: that of systems often lists more
// transitions, which is easier.
func TestMain(m *testing.M) {
	if os.Getenv("ZONEINFO") == "" {
		os.Setenv("ZONEINFO", ownData)
	}
	os.Exit(m.Run())
}

func zoneNames(t *testing.T) (names []string) {
	archive, err := zip.OpenReader(ownData)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	for _, f := range archive.File {
		if !strings.HasSuffix(f.Name, "/") && f.Name != "Factory" {
			names = append(names, f.Name)
		}
	}
	return names
}

// TestTheOracleCanFail plants the usual bug: a clock that is set is taken to change nothing.
func TestTheOracleCanFail(t *testing.T) {
	transition := time.Date(2027, 3, 28, 1, 0, 0, 0, time.UTC).Unix()
	from, to := transition-around, transition+around
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	berlin := look(zone, from, to)
	const cron = "30 2 * * *"
	planted := parse(t, postdate.Recurrence{Cron: cron, Timezone: "Etc/GMT-1"}, 1) // the offset before
	got, fault := occurrences(planted, from, to)
	if f := read(cron); fault != "" || slices.Equal(got, f.occurrences(berlin.moments(f), 0, 0)) {
		t.Errorf("the oracle agrees with it: %v %s", got, fault)
	}
}
