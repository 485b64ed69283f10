package machine

import (
	"time"

	"github.com/postdate/postdate"
)

// jobsEvery is the pause between two looks for jobs in the own buckets.
const jobsEvery = time.Second

type (
	// Work asks for one page of each job of these buckets that has not ended. Worked answers it.
	Work struct{ Buckets []int }
	// Worked says that a Work is done. More: a job came further and has not ended.
	Worked struct{ More bool }
	// JobStarted says that there is a new job, perhaps in a bucket of this node.
	JobStarted struct{}
)

func (Work) Effect()      {}
func (Worked) Event()     {}
func (JobStarted) Event() {}

// jobs decides when to work on jobs: one page of each in turn, so that a long job does not keep a short one waiting.
// A node that has lost a bucket meanwhile does no harm: each page may be repeated, and only one of two nodes notes
// how far the job has come.
type jobs struct {
	under bool
	again bool          // a job was started meanwhile
	next  time.Duration // when to look again
}

// see takes in an event.
func (j *jobs) see(now postdate.Now, ev Event) {
	switch ev := ev.(type) {
	case Worked:
		if ev.More || j.again {
			j.next = now.Mono
		}
		j.under, j.again = false, false
	case JobStarted:
		j.next, j.again = now.Mono, j.under
	}
}

// wake is when the next look is due.
func (j *jobs) wake() time.Duration {
	if j.under {
		return never
	}
	return j.next
}

// workOnJobs asks for work on the jobs of the own buckets, while the node has its lease.
func (m *Machine) workOnJobs(now postdate.Now) {
	j := &m.jobs
	if j.under || now.Mono < j.next {
		return
	}
	j.next = now.Mono + jobsEvery
	if now.Mono >= m.fence.Until() {
		return
	}
	if buckets := m.fence.Buckets(); len(buckets) > 0 {
		j.under = true
		m.emit(Work{buckets})
	}
}
