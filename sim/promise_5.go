package sim

import (
	"fmt"

	"github.com/postdate/postdate/store"
)

// promise5: one owner commits. A node that lost a bucket begins no publish of its messages,
// moves no checkpoint, and settles only what was delivered. The token grows with every change
// of owner, for ever.
func promise5(h *history, f fact) string {
	switch f := f.(type) {
	case factEmit:
		if e := f.e; e.token != e.partition.Token && !e.unaware {
			return fmt.Sprintf("%s publishes %s under token %d of bucket %d, which is at %d (%s)",
				e.process.lease, e.story.key.ScheduleID, e.token,
				e.partition.Bucket, e.partition.Token, e.partition.Lease)
		}
	case factClaim:
		if f.claim.Token != f.before.Token {
			return fmt.Sprintf("%s moved the checkpoint of bucket %d under token %d, which is at %d",
				f.node, f.claim.Bucket, f.claim.Token, f.before.Token)
		}
		if f.after.Claimed.Before(f.before.Claimed) {
			return fmt.Sprintf("claimed of bucket %d went back", f.claim.Bucket)
		}
	case factPartition:
		switch {
		case f.after.Token < f.before.Token:
			return fmt.Sprintf("the token of bucket %d went back from %d to %d",
				f.after.Bucket, f.before.Token, f.after.Token)
		case f.after.Owner != "" && f.after.Lease != f.before.Lease && f.after.Token <= f.before.Token:
			return fmt.Sprintf("bucket %d has a new owner under the old token %d", f.after.Bucket, f.after.Token)
		}
	case factRecord:
		token := h.w.store.Records[f.story.key.Bucket].Token
		s := f.settlement
		if s != nil && s.Token != token && !f.after.Status.Final() && s.How != store.SettleDelivered {
			return fmt.Sprintf("%s was settled under token %d, and its bucket is at %d",
				f.story.key.ScheduleID, s.Token, token)
		}
	}
	return ""
}
