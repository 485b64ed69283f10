package testrun_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postdate/postdate/internal/testrun"
)

// witness keeps what is reported.
type witness struct{ log, fatal string }

func (w *witness) Helper()                           {}
func (w *witness) Logf(format string, args ...any)   { w.log += fmt.Sprintf(format, args...) }
func (w *witness) Fatalf(format string, args ...any) { w.fatal += fmt.Sprintf(format, args...) }

// The variable fixes the seed, and the log shows it.
func TestSeed(t *testing.T) {
	t.Setenv(testrun.SeedName, "")
	w := &witness{}
	fresh := testrun.Seed(w)
	if !strings.HasPrefix(w.log, fmt.Sprintf("seed %d;", fresh)) || fresh == testrun.Seed(w) {
		t.Errorf("seed %d is not fresh, or not logged: %s", fresh, w.log)
	}
	t.Setenv(testrun.SeedName, "281474976710655")
	w = &witness{}
	if got := testrun.Seed(w); got != 281474976710655 || !strings.HasPrefix(w.log, "seed 281474976710655;") {
		t.Errorf("the seed is %d, and logged %s", got, w.log)
	}
	if a, b := testrun.Random(w).Uint64(), testrun.Random(w).Uint64(); a != b {
		t.Errorf("one seed gave %d and %d", a, b)
	}
	t.Setenv(testrun.SeedName, "tree")
	testrun.Seed(w)
	if !strings.Contains(w.fatal, `POSTDATE_TEST_SEED is "tree": give a number`) {
		t.Errorf("it says %q", w.fatal)
	}
}
