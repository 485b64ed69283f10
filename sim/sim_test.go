package sim

import (
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/postdate/postdate/internal/testrun"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(1500) // a world takes 3 MB and makes much garbage
	m.Run()
}

// report fails a test and logs what is needed to replay the failure.
func report(t *testing.T, o Options, r Result) {
	t.Helper()
	short := Shrink(o, r, time.Now().Add(20*time.Second))
	t.Errorf("seed %d (%s): %s\nshortest: %s\nreplay it with: go run ./cmd/sim -v -seed %d -keep %s",
		o.Seed, r.Profile, r.Violation, short.Violation, o.Seed, Ranges(short.Items))
}

// TestSim plays worlds for POSTDATE_SIM_SECONDS (20 by default), with consecutive seeds from
// the test's own.
func TestSim(t *testing.T) {
	seconds := 20
	if s := os.Getenv("POSTDATE_SIM_SECONDS"); s != "" {
		var err error
		if seconds, err = strconv.Atoi(s); err != nil {
			t.Fatalf("POSTDATE_SIM_SECONDS is %q: give a number", s)
		}
	}
	if testing.Short() {
		seconds = 2
	}
	simulated, worlds := time.Duration(0), 0
	seed := testrun.Seed(t)
	for until := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(until); seed++ {
		o := Options{Seed: seed}
		r := Run(o)
		if r.Violation != nil {
			report(t, o, r)
			return
		}
		simulated, worlds = simulated+r.Simulated, worlds+1
	}
	t.Logf("%d worlds up to seed %d, %.1f h simulated: every promise was kept", worlds, seed-1, simulated.Hours())
}

// TestSeeds plays one world of each sort, always the same ones, and requires that things happen
// in it.
func TestSeeds(t *testing.T) {
	for seed := range uint64(10) {
		o := Options{Seed: seed, Length: 2 * time.Minute}
		r := Run(o)
		switch {
		case r.Violation != nil:
			report(t, o, r)
		case r.Messages["DELIVERED"] < 50 || r.Messages["CANCELLED"] == 0:
			t.Errorf("seed %d (%s): the world tried too little: %v", seed, r.Profile, r.Messages)
		}
	}
}

// TestSameSeedSameTrace shows that a failure can be replayed.
func TestSameSeedSameTrace(t *testing.T) {
	for seed := range uint64(10) {
		o := Options{Seed: seed, Length: time.Minute}
		first, second := Run(o), Run(o)
		if first.Trace != second.Trace || first.Steps != second.Steps {
			t.Errorf("seed %d (%s): two runs, two traces: %x and %x", seed, first.Profile, first.Trace, second.Trace)
		}
		o.Keep = first.Items
		if kept := Run(o); kept.Trace != first.Trace {
			t.Errorf("seed %d (%s): playing every item by name is another run", seed, first.Profile)
		}
		o.Keep, o.Seed = nil, seed+10
		if other := Run(o); other.Trace == first.Trace {
			t.Errorf("seeds %d and %d have the same trace", seed, o.Seed)
		}
	}
}

// TestShrink shortens a long failure.
func TestShrink(t *testing.T) {
	o := Options{Seed: 0, Length: time.Minute, bug: bugConfirmIgnored}
	r := Run(o)
	if r.Violation == nil {
		t.Fatal("the planted bug was not found")
	}
	short := Shrink(o, r, time.Now().Add(time.Minute))
	if len(short.Items) > 3 || short.Violation == nil {
		t.Errorf("%d items are left of %d: %v", len(short.Items), len(r.Items), short.Items)
	}
	items, err := ParseRanges(Ranges(short.Items))
	if err != nil || !slices.Equal(items, short.Items) {
		t.Errorf("%v became %v, error %v", short.Items, items, err)
	}
	if _, err := ParseRanges("3,x"); err == nil {
		t.Error("a list that is none was taken")
	}
}
