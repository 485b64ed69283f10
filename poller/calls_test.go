package poller

import (
	"maps"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// claimCall is the number of the claims that are under way, for tests with one such call.
func (m *Machine) claimCall() uint64 { return slices.Max(slices.Collect(maps.Keys(m.claimings))) }

// settleCall is the same for settlements.
func (m *Machine) settleCall() uint64 { return slices.Max(slices.Collect(maps.Keys(m.settlings))) }

// seen answers a claim whose scan comes to its end and finds these messages.
func seen(c store.Claim, due ...postdate.Record) store.ClaimResult {
	return store.ClaimResult{Due: due, To: c.To, Ended: c.To, Complete: true, Next: postdate.Far}
}

// found answers a claim as a store does that holds these records, in the order of their
// positions, and examines no more than so many of them.
func found(rows []postdate.Record, c store.Claim, examinedMax int) store.ClaimResult {
	r := store.ClaimResult{To: c.To, Ended: c.To, Complete: true, Next: postdate.Far}
	examined := 0
	for i := range rows {
		rec := &rows[i]
		at := bucket.PositionOf(rec.Key, rec.AttemptTime)
		if rec.Status != postdate.Pending || !c.Scan.After.Before(at) {
			continue
		}
		if c.To.Before(at) {
			r.Next = at.Time
			break
		}
		until, behind := c.Behind[rec.Channel]
		if c.Only == rec.Channel || c.Only == "" && (!behind || !until.Before(at)) {
			r.Due = append(r.Due, *rec)
		}
		if examined++; examined >= examinedMax || len(r.Due) >= c.Scan.Limit {
			r.To, r.Ended, r.Complete = at, at, false
			break
		}
	}
	if c.IfDue && len(r.Due) == 0 && r.Complete {
		r.To = bucket.Position{}
	}
	return r
}
