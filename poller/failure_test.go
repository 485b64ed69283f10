package poller

import (
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// A message that fails goes on to its own failure channel, else to the one that is set for its channel. Nothing
// follows the failure of what a failed message left, and nothing leads back.
func TestFailureChannels(t *testing.T) {
	const own, set = "inbox:own", "inbox:set"
	for name, test := range map[string]struct {
		id       string
		own, set postdate.Channel
		want     postdate.Channel
	}{
		"none":                       {"m", "", "", ""},
		"its own":                    {"m", own, "", own},
		"that of its channel":        {"m", "", set, set},
		"both":                       {"m", own, set, own},
		"it was left by a failure":   {"m!1", "", set, ""},
		"its own is where it failed": {"m", "inbox:a", set, ""},
		"the set one is":             {"m", "", "inbox:a", ""},
	} {
		for how, r := range map[store.Settling]publisher.Result{
			store.SettleFailed: {Outcome: publisher.Refused, Permanent: true}, store.SettleRetry: refused, store.SettleDelivered: confirmed,
		} {
			b := newSleeper(t, nil)
			b.step(Limits{Settings: []store.ChannelSettings{{Route: "inbox:a", FailureChannel: test.set}}})
			rec := records("inbox:a", 1, b.now.Wall-10)[0]
			rec.ScheduleID, rec.FailureChannel = test.id, test.own
			want := test.want
			if how != store.SettleFailed {
				want = ""
			}
			if s := b.onlySettlement(b.outcome(b.read(rec), r)); s.How != how || s.FailureChannel != want {
				t.Errorf("%s: settled as %+v, want %d with %q", name, s, how, want)
			}
		}
	}
}

// Whatever ends a message as failed names its failure channel.
func TestEachWayToFail(t *testing.T) {
	for name, rec := range map[string]func(*postdate.Record){
		"expired":         func(r *postdate.Record) { r.ExpiresAt = r.ExecutionTime + 1 },
		"waited too long": func(r *postdate.Record) { r.DownSince, r.Retry.MaxParked = r.ExecutionTime-9000, ms },
	} {
		s := newShop(t, 1, nil)
		s.down = every[postdate.Route]
		m := records("inbox:a", 1, s.now.Wall-10_000)[0]
		m.FailureChannel = "kafka:failed"
		rec(&m)
		s.store.Put("", nil, m, nil)
		s.run(5 * time.Second)
		if f, failed := s.failed[m.ScheduleID]; !failed || f.as.FailureChannel != "kafka:failed" {
			t.Errorf("%s: it is %+v, %t", name, f, failed)
		}
	}
}

// What a failed message left goes out at once, and not with the next sweep.
func TestWhatAFailureLeftIsFound(t *testing.T) {
	s := newShop(t, 1, nil)
	s.add(0, "inbox:a", 1, 100*ms)
	s.run(50 * ms)
	rec := records("inbox:b", 1, s.now.Wall+50)[0]
	rec.ExpiresAt, rec.FailureChannel = rec.ExecutionTime+1, "inbox:failed"
	s.store.Put("", nil, rec, nil)
	s.m.nudge(0, spanSince(rec.ExecutionTime))
	s.run(300 * ms)
	if s.arrived["inbox:failed"] != 1 {
		t.Errorf("what arrived is %v, and what failed %v", s.arrived, s.failed)
	}
}
