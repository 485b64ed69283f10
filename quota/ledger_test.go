package quota

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/store"
)

// counted is what a store has pending of one tenant.
type counted []change

func (c counted) usage(channel postdate.Channel) (u store.Usage, uses bool) {
	channels := map[postdate.Channel]bool{}
	for _, m := range c {
		u.Messages++
		u.Bytes += m.bytes
		channels[m.channel] = true
	}
	u.Channels = int64(len(channels))
	return u, channels[channel]
}

// call is a call under way: what it may add, and what of it the store has done already.
type call struct {
	r       reservation
	changes []change
	done    int
}

// play lets calls begin, be done in part, end and be lost, and messages be delivered, in any
// order. What is pending is never more than the limits, nothing counts below zero, and in the end
// nothing is reserved.
func play(t *testing.T, events []byte) {
	limits := Limits{PendingMax: 7, BytesMax: 40, ChannelsMax: 3}
	var l ledger
	var pending counted
	var calls []*call
	now := time.Unix(0, 0)
	end := func(c *call, lost bool) {
		var unknown reservation
		for _, x := range c.changes[c.done:] {
			if lost {
				unknown.add(&x)
			}
		}
		l.release(now, &c.r, &unknown)
	}
	for _, e := range events {
		n := int(e >> 3)
		switch e % 6 {
		case 0, 1: // a call of up to three messages begins
			var changes []change
			for i := range 1 + n%3 {
				changes = append(changes, change{1, int64((n + 5*i) % 20), postdate.Channel(fmt.Sprint("inbox:", (n/3+i)%5))})
			}
			l.forget(now)
			r, refused := l.reserve(limits, pending.usage, changes)
			c := &call{r: r}
			for i := range changes {
				if refused == nil || refused[i] == nil {
					c.changes = append(c.changes, changes[i])
				}
			}
			calls = append(calls, c)
		case 2: // a call does one message more
			if len(calls) > 0 {
				if c := calls[n%len(calls)]; c.done < len(c.changes) {
					pending = append(pending, c.changes[c.done])
					c.done++
				}
			}
		case 3: // a call ends
			if len(calls) > 0 {
				i := n % len(calls)
				end(calls[i], n%4 == 0)
				calls = append(calls[:i], calls[i+1:]...)
			}
		case 4: // a message is delivered
			if len(pending) > 0 {
				i := n % len(pending)
				pending = append(pending[:i:i], pending[i+1:]...)
			}
		case 5:
			now = now.Add(time.Duration(n) * time.Second)
		}
		u, _ := pending.usage("")
		if u.Messages > limits.PendingMax || u.Bytes > limits.BytesMax || u.Channels > limits.ChannelsMax {
			t.Fatalf("%+v is pending", u)
		}
		if c := l.coming; c.messages < 0 || c.bytes < 0 || len(c.channels) > 0 && slices.Min(slices.Collect(maps.Values(c.channels))) <= 0 {
			t.Fatalf("%+v is reserved", c)
		}
	}
	for _, c := range calls {
		end(c, true)
	}
	if l.forget(now.Add(doubtTime + time.Second)); !l.coming.none() {
		t.Fatalf("in the end %+v is reserved", l.coming)
	}
}

func FuzzLedger(f *testing.F) {
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Fuzz(play)
}

func TestLedger(t *testing.T) {
	random := testrun.Random(t)
	for range 2000 {
		events := make([]byte, random.IntN(200))
		for i := range events {
			events[i] = byte(random.Uint32())
		}
		play(t, events)
	}
}
