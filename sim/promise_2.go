package sim

import (
	"fmt"
	"time"

	"github.com/postdate/postdate"
)

// promise2: nothing is published before its execution time by the publishing node's clock. Nor
// is anything published long before it by true time, because a node whose clock is off owns
// nothing; a node that is alone has only its own clock.
func promise2(h *history, f fact) string {
	emit, ok := f.(factEmit)
	if !ok {
		return ""
	}
	e := emit.e
	if early := e.message.ExecutionTime - e.wall; early >= 0 {
		return fmt.Sprintf("%s is published %d ms before its time by its node's own clock",
			e.story.key.ScheduleID, early)
	}
	if early := e.message.ExecutionTime.Sub(h.w.wall()); early > earlyMax(e.process) && !h.w.plan.alone() {
		return fmt.Sprintf("%s is published %s before its time by a node whose clock is ahead",
			e.story.key.ScheduleID, early)
	}
	return ""
}

// earlyMax is how early a process may publish by true time, whatever its clock does: the limit
// of its skew, plus what can go unnoticed between renewals.
func earlyMax(p *process) time.Duration { return postdate.ClockSkewMaxDefault + p.lasts }
