package postdate

import (
	"slices"
	"strings"
	"time"
)

// Recurrence says when a message recurs, as its client said it. Package recurrence reads it.
type Recurrence struct {
	Every  time.Duration // an interval; 0: by Cron
	Anchor Time          // an occurrence of Every; 0: Start, else the time of creation

	Cron     string // five or six fields, or a name such as @hourly
	Timezone string // of Cron: a name of the IANA database

	Start, End   Time          // the first and the last moment that may be an occurrence; 0: any
	MaxRuns      int           // occurrences; 0: no limit
	Jitter       time.Duration // each occurrence is begun later by a part of it
	Misfire      Misfire
	MisfireAfter time.Duration // 0: MisfireAfterDefault
	Gap          Gap           // of Cron
	Overlap      Overlap       // of Cron
}

// MisfireAfterDefault is how late an occurrence may begin if its client does not say.
const MisfireAfterDefault = time.Minute

// Misfire says what becomes of occurrences that could not begin in time: nothing was there to
// begin them, or their channel was down.
type Misfire uint8

// The policies.
const (
	MisfireOnce Misfire = iota // the latest of them begins, the others are skipped
	MisfireAll                 // each of them begins, the latest FireAllMax at most
	MisfireSkip                // all of them are skipped
)

// Gap says what becomes of local times that do not exist, because the clock is set forward.
type Gap uint8

// What can become of them.
const (
	GapDefault Gap = iota // GapAfter, but GapSkip for a rule that names all 24 hours
	GapAfter              // one occurrence when the gap ends
	GapSkip               // none
)

// Overlap says which of two equal local times count, where the clock is set back.
type Overlap uint8

// Those that can count.
const (
	OverlapDefault Overlap = iota // OverlapFirst, but OverlapBoth for a rule that names all 24 hours
	OverlapFirst
	OverlapSecond
	OverlapBoth
)

// Their names on the wire. A default has none.
var (
	misfireNames = [...]string{MisfireOnce: "fire_once", MisfireAll: "fire_all", MisfireSkip: "skip"}
	gapNames     = [...]string{GapAfter: "after", GapSkip: "skip"}
	overlapNames = [...]string{OverlapFirst: "first", OverlapSecond: "second", OverlapBoth: "both"}
)

// String is the policy's name on the wire.
func (m Misfire) String() string { return misfireNames[m] }

// String is the name on the wire: "" for the default.
func (g Gap) String() string { return gapNames[g] }

// String is the name on the wire: "" for the default.
func (o Overlap) String() string { return overlapNames[o] }

// ParseMisfire parses a policy by its name on the wire.
func ParseMisfire(name string) (Misfire, error) {
	return parseName[Misfire]("misfire", name, misfireNames[:])
}

// ParseGap parses a Gap by its name on the wire.
func ParseGap(name string) (Gap, error) { return parseName[Gap]("gap", name, gapNames[:]) }

// ParseOverlap parses an Overlap by its name on the wire.
func ParseOverlap(name string) (Overlap, error) {
	return parseName[Overlap]("overlap", name, overlapNames[:])
}

func parseName[T ~uint8](field, name string, names []string) (T, error) {
	i := slices.Index(names, name)
	if i < 0 || name == "" {
		known := strings.Join(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "" }), ", ")
		return 0, E(KindInvalid, "%s %q is not one of %s", field, name, known)
	}
	return T(i), nil
}
