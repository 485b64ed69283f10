package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/node/machine"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// bug is a planted bug, of the sort that a fence, a poller, a store, a publisher or an API
// could have. Only tests plant one. Bugs are implemented here and in store.go, around the
// product's machines and the model: the product has no switch for them.
type bug string

// The planted bugs.
const (
	bugNoFence           bug = "a claim is not fenced"
	bugTokenReset        bug = "a release resets the token"
	bugNotDurable        bug = "acknowledged before it is durable"
	bugUnknownIsRefused  bug = "an unknown publish is taken for refused"
	bugUnknownIsDone     bug = "an unknown publish is taken for confirmed"
	bugConfirmIgnored    bug = "a publish counts as confirmed when it is sent"
	bugNotMandatory      bug = "the broker drops what is unroutable, and confirms it"
	bugCheckpointFilters bug = "scans return nothing behind the checkpoint"
	bugClaimAfterRead    bug = "a claim is written after its read"
	bugNoSecondLook      bug = "a cancel does not look at the claim"
	bugCancelForgotten   bug = "a cancel of a retried message answers and does nothing"
	bugLeaseByWall       bug = "leases are judged by the wall clock"
	bugSettleVersion     bug = "a settlement overwrites a newer version"
	bugSettleFinal       bug = "a settlement overwrites a final state"
	bugSettleToken       bug = "a settlement needs no token"
	bugNoSweep           bug = "nothing looks behind the scans"
	bugNoNudges          bug = "no nudges, and no sweep"
	bugEarly             bug = "the poller's clock is ahead"
	bugNoMark            bug = "the mark of a possible duplicate is left out"
	bugNoLease           bug = "the lease is not checked before publishing"
	bugFirstSight        bug = "a bucket is taken over at first sight"
	bugGossipIsTruth     bug = "who is not seen in gossip is taken for dead"
	bugRetryForgets      bug = "a retry forgets the mark of a possible duplicate"
	bugCheckpointRuns    bug = "the checkpoint runs ahead of what is unsettled"
	bugNoDoubt           bug = "a new owner takes what was claimed for settled"
	bugOneByOne          bug = "each publish waits for all before it"
	bugScanBeyond        bug = "scans return what is not due"
	bugInsertTwice       bug = "a repeated request schedules anew"
	bugParkedForgotten   bug = "parked messages of earlier owners are not looked for"
	bugSkewIgnored       bug = "a node with a wrong clock owns buckets"
	bugJumpBelieved      bug = "a wall clock that is set is believed until the next renewal"
	bugSettledTwice      bug = "a refused publish is taken for an attempt that never was"
	bugClaimCostsAll     bug = "a claim costs what is stored"
	bugRowsVanish        bug = "a settled message vanishes"
	bugLateClaims        bug = "a late claim is written"
	bugBehindIsRead      bug = "scans return what is not claimed of channels that are behind"
	bugVersionAgain      bug = "every message begins at version 1"
	bugDeliversAgain     bug = "a message that is settled already gets into its inbox once more"
	bugDeliversApart     bug = "a message gets into its inbox and is not settled in the same step"
	bugPriorityLost      bug = "messages are stored without their priority"
	bugArmedTwice        bug = "a take-over moves series on that are already moved on"
	bugOccurrenceIgnored bug = "a settlement that is repeated moves a series on once more"
	bugEndingNotKept     bug = "a cancel of a series in flight is answered and not kept"
	bugEndingIgnored     bug = "a series that is ending goes on"
	bugRetriedLost       bug = "a series goes on, and what was to be retried is not there"
	bugRetriedGoesOn     bug = "a cancel of a series leaves what is retried of it"
	bugPauseIgnored      bug = "what is read of a paused series does not say so"
	bugPauseForgotten    bug = "a settlement forgets that its series is paused"
	bugPauseNotKept      bug = "a pause of a series in flight is answered and not kept"
	bugChangedInThePast  bug = "a changed series begins in the past"
	bugChangeLosesCounts bug = "a change of a series loses what was counted"
	bugTriggerOutlives   bug = "a trigger takes no notice of a cancel"
	bugTriggerMoves      bug = "an occurrence out of turn moves the rule"
	bugFailsWithout      bug = "a message fails without leaving one for its failure channel"
	bugRetryLeaves       bug = "what is tried again leaves a message for its failure channel"
	bugLeftVanishes      bug = "what a failed message left vanishes"
	bugRedriveUnmarks    bug = "a redrive drops the mark of a possible duplicate"
	bugRedrivenTwice     bug = "a redrive that is repeated is done again"
	bugPurgesRedriven    bug = "a purge takes what was redriven meanwhile"
)

// machineConfig returns the configuration of a process's machine.
func (w *world) machineConfig(p *process) machine.Config {
	c := machine.Config{
		Fence: fence.DefaultConfig(p.n.name, p.lease), Poller: w.plan.poller, Buckets: w.plan.buckets,
		Broker:    w.plan.broker,
		Retention: w.plan.retention, InboxRetention: w.plan.inboxRetention,
	}.WithLease(p.lasts)
	c.Fence.Exclusive, c.Poller.Delivers = w.plan.alone(), w.plan.alone()
	switch w.bug {
	case bugFirstSight:
		c.Fence.Exclusive = true
	case bugSkewIgnored:
		c.Fence.SkewMax = 0
	case bugNoSweep, bugNoNudges:
		c.Poller.SweepEvery = 1000 * time.Hour
	case bugJumpBelieved:
		c.Poller.JumpMax = 1000 * time.Hour
	case bugParkedForgotten:
		c.Poller.FindEvery = 1000 * time.Hour
	case bugNoLease:
		c.Poller.LeaseMargin = -1000 * time.Hour
	}
	return c
}

// now is what the clocks show to the machine.
func (p *process) now() postdate.Now {
	now := p.n.clock.now()
	switch p.w.bug {
	case bugEarly:
		now.Wall += 20
	case bugLeaseByWall:
		now.Mono = now.Wall.Sub(epoch) + time.Hour
	}
	return now
}

// wall is the time that the process writes into the store.
func (p *process) wall() postdate.Time { return p.m.Board().Wall(p.now()) }

// event returns the event that a machine with the bug would see instead.
func (p *process) event(ev machine.Event) machine.Event {
	switch ev := ev.(type) {
	case fence.Saw:
		if p.w.bug == bugGossipIsTruth {
			ev.Partitions = slices.Clone(ev.Partitions)
			for i, q := range ev.Partitions {
				if q.Owner != p.n.name && !strings.Contains(p.believes, q.Owner) {
					ev.Partitions[i].Owner = ""
				}
			}
		}
		return ev
	case fence.Took:
		if p.w.bug == bugNoDoubt {
			ev.Results = slices.Clone(ev.Results)
			for i, r := range ev.Results {
				ev.Results[i].Partition.Checkpoint = max(r.Partition.Claimed.Time-1, 0)
			}
		}
		return ev
	case poller.Published:
		results := make([]publisher.Result, len(ev.Results))
		for i, r := range ev.Results {
			switch {
			case p.w.bug == bugUnknownIsRefused && r.Outcome == publisher.Unknown:
				r.Outcome = publisher.Refused
			case p.w.bug == bugUnknownIsDone && r.Outcome == publisher.Unknown, p.w.bug == bugConfirmIgnored:
				r = publisher.Result{Outcome: publisher.Confirmed}
			case p.w.bug == bugSettledTwice && r.Outcome == publisher.Unknown:
				r = publisher.Result{Outcome: publisher.Down, Reason: r.Reason}
			}
			results[i] = r
		}
		return poller.Published{Batch: ev.Batch, Results: results}
	}
	return ev
}

// effect returns the effect that a machine with the bug would want instead.
func (p *process) effect(e machine.Effect) machine.Effect {
	switch e := e.(type) {
	case poller.Settle:
		if p.w.bug == bugRetryForgets {
			settlements := make([]store.Settlement, len(e.Settlements))
			for i, s := range e.Settlements {
				if s.How == store.SettleRetry {
					s.PossibleDuplicate = false
				}
				settlements[i] = s
			}
			return poller.Settle{Call: e.Call, Settlements: settlements}
		}
	case poller.Claim:
		claims := make([]store.Claim, len(e.Claims))
		for i, c := range e.Claims {
			if p.w.bug == bugCheckpointRuns {
				runs := min(p.w.store.Records[c.Bucket].Claimed.Time-1, p.now().Wall)
				for _, to := range c.Behind {
					runs = min(runs, to.Time-1)
				}
				c.Checkpoint = max(c.Checkpoint, runs)
			}
			claims[i] = c
		}
		return poller.Claim{Call: e.Call, Claims: claims}
	}
	return e
}

func (p *process) parkedFound(found []store.ParkedRoute) []store.ParkedRoute {
	if p.w.bug == bugParkedForgotten {
		return nil
	}
	return found
}

// brokerBug returns the fate that a publisher with the bug would report.
func (p *process) brokerBug(f fateOf) fateOf {
	if p.w.bug == bugConfirmIgnored {
		f.took = 0
	}
	return f
}
