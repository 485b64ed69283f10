// Package testrun is what tests and the command that runs them (cmd/retest) agree on:
// where a test's chance comes from, and the words by which a checker says that a
// promise is broken. It has no part in how a test is written, and imports nothing
// that only tests may import: the benchmark of cmd/postdate is such a checker too.
package testrun

import (
	"math/rand/v2"
	"os"
	"strconv"
)

// Broken stands in all that a checker of a promise (docs/guarantees.md) says of one
// that was broken: a test that prints it is not tried again, for what was broken once
// is broken. A test that plants a bug to see it found does not print it.
const Broken = "PROMISE BROKEN"

// SeedName is the variable of the environment that fixes the chance of all tests.
const SeedName = "POSTDATE_TEST_SEED"

// Reporter is the part of testing.TB that Seed needs.
type Reporter interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Seed is the number from which a test draws all that it leaves to chance: that in
// SeedName, or a fresh one of 40 bits. It is logged, as "seed N", where cmd/retest
// finds it. The test ends where SeedName holds no number.
func Seed(t Reporter) uint64 {
	t.Helper()
	seed := rand.Uint64() >> 24
	if text := os.Getenv(SeedName); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s is %q: give a number", SeedName, text)
		}
	}
	t.Logf("seed %d; %s=%d draws the same again", seed, SeedName, seed)
	return seed
}

// Random draws from Seed. It is not safe for concurrent use.
func Random(t Reporter) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}
