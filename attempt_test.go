package postdate

import (
	"slices"
	"testing"
)

func TestAddAttempt(t *testing.T) {
	var log []Attempt
	for i := range AttemptLogMax + 3 {
		log = AddAttempt(log, Attempt{At: Time(i)})
	}
	for _, log := range [][]Attempt{log, make([]Attempt, 3, 9)} { // a full one, and one with room for more
		all := log[:cap(log)]
		before := slices.Clone(all)
		if AddAttempt(log, Attempt{At: 99}); !slices.Equal(all, before) {
			t.Errorf("the log of %d attempts was changed in place", len(log))
		}
	}
	if len(log) != AttemptLogMax || log[0].At != 3 || log[len(log)-1].At != AttemptLogMax+2 {
		t.Errorf("the log is %v, want the latest %d", log, AttemptLogMax)
	}
}
