package poller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// desk is a bench with several buckets, each of which is swept once, when it is gained.
// Claims and publishes wait until the test answers them.
type desk struct {
	*bench
	ids     int
	calls   []Claim   // that are not answered
	sent    []Publish // that are not answered
	unparks []Unpark
	writes  []store.Settlement
	slow    bool // the store answers no settlement
}

func newDesk(t *testing.T, change func(*Config)) *desk {
	d := &desk{bench: newBench(t)}
	d.m.c.SweepEvery, d.m.c.SettleGather = time.Hour, 0
	if change != nil {
		change(&d.m.c)
	}
	if err := d.m.c.Validate(); err != nil {
		t.Fatal(err)
	}
	return d
}

// tell feeds an event.
func (d *desk) tell(ev Event) {
	for _, e := range d.step(ev) {
		switch e := e.(type) {
		case Claim:
			d.calls = append(d.calls, e)
		case Publish:
			d.sent = append(d.sent, e)
		case Unpark:
			d.unparks = append(d.unparks, e)
		case Settle:
			d.writes = append(d.writes, e.Settlements...)
			if !d.slow {
				d.tell(Settled{Call: e.Call})
			}
		case FindParked:
			d.tell(ParkedFound{Buckets: e.Buckets})
		}
	}
}

// gain gives the machine so many buckets, of the numbers that follow, and lets the sweep
// of each find nothing.
func (d *desk) gain(n int) {
	d.t.Helper()
	d.gainRecords(make([]bucket.Partition, n)...)
}

// gainRecords is the same for buckets with these records.
func (d *desk) gainRecords(records ...bucket.Partition) {
	d.t.Helper()
	left, first := len(records), len(d.m.buckets)
	for i := range records {
		records[i].Bucket, records[i].Token, records[i].Owner = first+i, 1, "me"
	}
	d.tell(fence.Gained{Partitions: records})
	for left > 0 {
		call := d.take()
		left -= len(call.Claims)
		d.answer(call)
	}
}

// behind is the record of a bucket in which channels are behind: nothing is claimed of them
// that was due in the last half a second.
func (d *desk) behind(channels ...postdate.Channel) bucket.Partition {
	p := bucket.Partition{
		Checkpoint: d.now.Wall - 1_000, Claimed: bucket.UpTo(d.now.Wall - 10), Behind: map[postdate.Channel]bucket.Position{},
	}
	for _, c := range channels {
		p.Behind[c] = bucket.UpTo(d.now.Wall - 500)
	}
	return p
}

// take takes the only call that is not answered.
func (d *desk) take() Claim {
	d.t.Helper()
	if len(d.calls) != 1 {
		d.t.Fatalf("%d calls are not answered, want 1: %.1000s", len(d.calls), fmt.Sprintf("%+v", d.calls))
	}
	call := d.calls[0]
	d.calls = nil
	return call
}

// answer answers a call with these messages.
func (d *desk) answer(call Claim, due ...postdate.Record) {
	d.t.Helper()
	ev := Claimed{Call: call.Call}
	for _, c := range call.Claims {
		r := seen(c)
		for _, rec := range due {
			if rec.Bucket == c.Bucket {
				r.Due = append(r.Due, rec)
			}
		}
		if len(r.Due) > c.Scan.Limit {
			d.t.Fatalf("%d messages for a claim of at most %d", len(r.Due), c.Scan.Limit)
		}
		ev.Results = append(ev.Results, r)
	}
	d.tell(ev)
}

// lose loses the answer to a call.
func (d *desk) lose(call Claim) {
	ev := Claimed{Call: call.Call}
	for range call.Claims {
		ev.Results = append(ev.Results, store.ClaimResult{Err: postdate.E(postdate.KindUnknown, "the answer is lost")})
	}
	d.tell(ev)
}

// ask has a bucket claimed a moment later, and gives the call.
func (d *desk) ask(number int) Claim {
	d.t.Helper()
	d.after(callSlow) // also while another call is under way
	d.tell(Nudged{[]Nudge{{number, d.now.Wall - 1}}})
	return d.take()
}

// messages makes messages that are due, whose ids begin with their channel's name.
func (d *desk) messages(number int, channel postdate.Channel, n int) (all []postdate.Record) {
	for range n {
		d.ids++
		m := postdate.Message{
			Key:     postdate.Key{Bucket: number, Tenant: "t", ScheduleID: fmt.Sprintf("%s-%06d", channel, d.ids)},
			Channel: channel, ExecutionTime: d.now.Wall - 1,
		}
		all = append(all, postdate.Record{Message: m, State: postdate.NewState(&m, 1)})
	}
	return all
}

// bring has so many messages of a channel read in bucket 0, by as many claims as it takes.
func (d *desk) bring(channel postdate.Channel, n int) {
	d.t.Helper()
	for n > 0 {
		call := d.ask(0)
		some := min(n, call.Claims[0].Scan.Limit)
		d.answer(call, d.messages(0, channel, some)...)
		n -= some
	}
}

// reply answers all publishes of a channel.
func (d *desk) reply(channel postdate.Channel, outcome publisher.Outcome) {
	all := d.sent
	d.sent = nil
	for _, p := range all {
		if p.Channel == channel {
			d.tell(Published{p.Batch, publisher.All(len(p.Batch), publisher.Result{Outcome: outcome})})
		} else {
			d.sent = append(d.sent, p)
		}
	}
}

// prove has a channel take its first message.
func (d *desk) prove(channels ...postdate.Channel) {
	d.t.Helper()
	for _, c := range channels {
		d.bring(c, 1)
		d.reply(c, publisher.Confirmed)
	}
}

// flying is how many messages of a channel are with its broker.
func (d *desk) flying(channel postdate.Channel) (n int) {
	for _, p := range d.sent {
		if p.Channel == channel {
			n += len(p.Batch)
		}
	}
	return n
}

// parked is how many messages of a channel were parked.
func (d *desk) parked(channel postdate.Channel) (n int) {
	for _, s := range d.writes {
		if s.How == store.SettlePark && strings.HasPrefix(s.Key.ScheduleID, string(channel)+"-") {
			n++
		}
	}
	return n
}

// wantShare expects that so many messages of a channel are with its broker, and so many
// were parked.
func (d *desk) wantShare(channel postdate.Channel, flying, parked int) {
	d.t.Helper()
	if f, p := d.flying(channel), d.parked(channel); f != flying || p != parked {
		d.t.Errorf("%s: %d messages are with its broker and %d were parked, want %d and %d", channel, f, p, flying, parked)
	}
}

// hold sets limits so that no message of these channels goes out, or comes into the hand.
func (d *desk) hold(channels ...postdate.Channel) {
	var all []store.ChannelSettings
	for _, c := range channels {
		all = append(all, store.ChannelSettings{Channel: c, MaxPerSecond: 1e-6})
	}
	d.tell(Limits{all})
}

// wantForgotten expects that the machine remembers no channel.
func (d *desk) wantForgotten() {
	d.t.Helper()
	if all := d.m.Channels(); len(all) > 0 || len(d.m.behind) > 0 || len(d.m.crowded) > 0 {
		d.t.Errorf("it remembers %+v, %d of them as behind, and %d as crowded", all, len(d.m.behind), len(d.m.crowded))
	}
}
