package sim

import (
	"fmt"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// promise6: the checkpoint never passes an unsettled message, unless that arrived behind it, or
// was never claimed because its channel is behind; such a message is found too. What is
// published and not settled lies between checkpoint and claimed, so nothing parked is
// published.
func promise6(h *history, f fact) string {
	switch f := f.(type) {
	case factClaim:
		for _, r := range h.w.store.Waiting[f.claim.Bucket] {
			if r.AttemptTime > f.after.Checkpoint {
				break
			}
			if h.publishing(r, f.after.Token) {
				return fmt.Sprintf("the checkpoint of bucket %d moved from %d to %d, beyond %s, "+
					"which is due at %d and is being published",
					f.claim.Bucket, f.before.Checkpoint-epoch, f.after.Checkpoint-epoch,
					r.ScheduleID, r.AttemptTime-epoch)
			}
			if !r.Late && !f.after.ClaimedFor(r.Route()).Before(bucket.PositionOf(r.Key, r.AttemptTime)) {
				return fmt.Sprintf("the checkpoint of bucket %d moved from %d to %d, beyond %s, "+
					"which is due at %d and not settled",
					f.claim.Bucket, f.before.Checkpoint-epoch, f.after.Checkpoint-epoch,
					r.ScheduleID, r.AttemptTime-epoch)
			}
		}
	case factEmit:
		r, p := f.e.row, f.e.partition
		if r != nil && r.Status == postdate.Pending && presentEdition(&r.Record) == f.e.edition &&
			f.e.token == p.Token && !p.InDoubt(r.Route(), bucket.PositionOf(r.Key, r.AttemptTime)) {
			return fmt.Sprintf("%s, due at %d, is published outside of what is claimed of %s, (%d, %s]",
				r.ScheduleID, r.AttemptTime-epoch, r.Channel, p.Checkpoint-epoch, at(p.ClaimedFor(r.Route())))
		}
	case factEnd:
		for _, s := range h.order {
			if r := h.record(s); r != nil && r.Status == postdate.Pending && r.Late && h.due(r) {
				return fmt.Sprintf("%s came behind the checkpoint and is never found", s.key.ScheduleID)
			}
		}
	}
	return ""
}

// publishing reports whether the owner with this token has handed a message to its broker and
// not settled it yet.
func (h *history) publishing(r *row, token uint64) bool {
	for _, e := range h.presentOf(r).emissions {
		if e.row == r && e.token == token {
			return true
		}
	}
	return false
}
