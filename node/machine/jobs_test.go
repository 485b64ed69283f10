package machine

import (
	"testing"
	"time"

	"github.com/postdate/postdate/fence"
)

// After a turn in which a job came further, the next turn follows at once, and so it does after
// a new job; else after the usual pause.
func TestTurnsOfJobs(t *testing.T) {
	r := newRig(t, nil)
	r.step(fence.Tick{})
	r.run(jobsEvery + 20*time.Millisecond)
	turn := func(what string, want int) {
		t.Helper()
		works := took[Work](r)
		if len(works) != want {
			t.Fatalf("%s: %d turns, want %d", what, len(works), want)
		}
		if want > 0 && len(works[0].Buckets) != 4 {
			t.Errorf("%s: a turn with the buckets %v", what, works[0].Buckets)
		}
	}
	turn("at the start", 1)
	r.run(3 * jobsEvery)
	r.step(JobStarted{})
	turn("while one is under way", 0)
	r.step(Worked{})
	turn("after one, with a new job", 1)
	r.step(Worked{More: true})
	turn("after one in which a job came further", 1)
	r.step(Worked{})
	turn("after one in which none did", 0)
	asked := r.now.Mono
	r.run(jobsEvery - 20*time.Millisecond)
	turn("before the pause is over", 0)
	r.run(40 * time.Millisecond)
	turn("after the pause", 1)
	if pause := r.now.Mono - asked; pause > jobsEvery+100*time.Millisecond {
		t.Errorf("the pause was %v", pause)
	}
	r.step(Worked{})
	r.step(JobStarted{})
	turn("with a new job", 1)
}

// A node without a lease does not begin work.
func TestNoJobsWithoutALease(t *testing.T) {
	r := newRig(t, nil)
	r.step(fence.Tick{})
	r.run(jobsEvery + 20*time.Millisecond)
	took[Work](r)
	r.step(Worked{})
	r.silent = true
	r.at(r.m.Status().Lease)
	r.step(JobStarted{})
	if n := len(took[Work](r)); n != 0 {
		t.Errorf("%d turns after the lease has ended", n)
	}
}

// Nor does one without buckets.
func TestNoJobsWithoutBuckets(t *testing.T) {
	r := newRig(t, nil)
	r.step(fence.Tick{})
	r.run(jobsEvery + 20*time.Millisecond)
	took[Work](r)
	r.step(Worked{})
	r.step(Leave{})
	r.run(3 * jobsEvery)
	if works := took[Work](r); len(works) != 0 || r.m.Status().Held != 0 {
		t.Errorf("%+v with %d buckets", works, r.m.Status().Held)
	}
}
