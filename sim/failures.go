package sim

import (
	"fmt"
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// A message that fails leaves one for its failure channel. That has a story of its own.

// failureChannelOf returns the failure channel of message a to channel b: every fourth has one, which may refuse
// it too.
func (p *plan) failureChannelOf(a, b int) postdate.Channel {
	if a%4 != 1 {
		return ""
	}
	return p.channels[(b+1)%4]
}

// failedOf returns the key of the message, or of the series, that left one.
func failedOf(left postdate.Key) (of postdate.Key) {
	of = left
	of.ScheduleID, _, _ = strings.Cut(left.ScheduleID, "!")
	return of
}

// leftBy returns the key of what the present version of a row leaves if it fails.
func leftBy(r *row) postdate.Key {
	m := r.Message
	if r.Occurrence != 0 {
		m = m.Alone(r.Occurrence)
	}
	m = m.Failed(postdate.Failure{Version: r.Version})
	return m.Key
}

// left begins the story of what a failed message left.
func (h *history) left(m *postdate.Message) {
	failed := *m
	failed.Key = failedOf(m.Key)
	of := h.about[editionOf(&failed)]
	if of == nil { // an occurrence of a series that fails at its first attempt
		failed.ExecutionTime = failed.Key.Occurrence()
		of = h.occurrence(&failed)
	}
	edition := editionOf(m)
	if h.about[edition] != nil {
		return // conservation says that it is made a second time
	}
	s := &story{number: of.number + 1<<60, key: m.Key, request: m, failed: of,
		withdrawn: map[string]string{}, acked: true}
	h.about[edition] = s
	h.order = append(h.order, s)
	h.counts["left"]++
}

// leaves says what is wrong with what a message left, or did not leave, for its failure channel. What was left
// counts as acknowledged, so that it is never lost.
func (h *history) leaves(f factRecord) string {
	if f.by == "leave" {
		of := failedOf(f.after.Key)
		r := h.w.store.Rows[of]
		if series, is := of.OfSeries(); is && r == nil {
			r = h.w.store.Rows[series]
		}
		switch {
		case r == nil || r.Status != postdate.Pending || r.Version != f.after.Version:
			return fmt.Sprintf("%s is there, and what it tells of did not fail", f.after.ScheduleID)
		case f.after.FailureChannel != "":
			return fmt.Sprintf("%s has a failure channel, so failures could go round for ever", f.after.ScheduleID)
		}
		return ""
	}
	if f.before == nil || f.before.FailureChannel == "" || f.before.FailureChannel == f.before.Channel {
		return ""
	}
	failed := f.after.Status == postdate.DeliveryFailed
	if f.before.Occurrence != 0 {
		s := f.settlement
		failed = s != nil && s.How == store.SettleFailed && s.Advances() && !f.before.Ending
	}
	left := h.w.store.Rows[leftBy(f.before)]
	switch {
	case f.before.Status.Final(): // it is said elsewhere
	case failed && left == nil:
		return fmt.Sprintf("%s failed, and left nothing for its failure channel", f.after.ScheduleID)
	case !failed && left != nil:
		return fmt.Sprintf("%s did not fail, and left %s", f.after.ScheduleID, left.ScheduleID)
	}
	return ""
}
