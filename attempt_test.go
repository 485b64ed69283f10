package postdate

import "testing"

func TestAddAttempt(t *testing.T) {
	var log []Attempt
	for i := range AttemptLogMax + 3 {
		log = AddAttempt(log, Attempt{At: Time(i)})
	}
	before := log[0]
	if AddAttempt(log, Attempt{At: 99}); log[0] != before {
		t.Error("the log was changed in place")
	}
	if len(log) != AttemptLogMax || log[0].At != 3 || log[len(log)-1].At != AttemptLogMax+2 {
		t.Errorf("the log is %v, want the latest %d", log, AttemptLogMax)
	}
}
