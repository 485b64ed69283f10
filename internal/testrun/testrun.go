// Package testrun is what tests share with the command that runs them (cmd/retest): the source
// of a test's randomness, and the words by which a checker says that a promise is broken. It
// has no part in how a test is written, and imports nothing that is only for tests, because the
// benchmark of cmd/postdate is such a checker too.
package testrun

import (
	"math/rand/v2"
	"os"
	"strconv"
)

// Broken is in everything that a checker of the promises (docs/guarantees.md) says about a
// broken one. A test that prints it is not repeated, because a pass would prove nothing. A test
// that plants a bug, to see it found, does not print it.
const Broken = "PROMISE BROKEN"

// SeedName is the environment variable that fixes the randomness of all tests.
const SeedName = "POSTDATE_TEST_SEED"

// Reporter is the part of testing.TB that Seed needs.
type Reporter interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Seed returns the seed of a test's randomness: the value of SeedName, or a random one of 40
// bits. It is logged as "seed N", where cmd/retest finds it. If SeedName is not a number, the
// test ends.
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

// Random returns a generator seeded by Seed. It is not safe for concurrent use.
func Random(t Reporter) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}
