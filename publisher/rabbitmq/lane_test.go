package rabbitmq

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate"
	amqpheader "github.com/postdate/postdate/internal/amqp"
	"github.com/postdate/postdate/publisher"
)

// answer is a confirm that the test gives.
type answer struct{ done, acked bool }

func (a *answer) Done() <-chan struct{} {
	if a.done {
		return closed
	}
	return nil
}
func (a *answer) Acked() bool { return a.done && a.acked }

var epoch = time.Unix(1_800_000_000, 0)

func newItem(key, id string) *item {
	return &item{name: name{key, id}, bell: make(chan struct{}, 1)}
}

// provenLane returns a lane with a link that has carried a message.
func provenLane(window int) (*lane, *link) {
	l, on := newLane("x", window), &link{}
	l.link, l.proven = on, true
	return l, on
}

func ids(items []*item) string {
	var s []string
	for _, it := range items {
		s = append(s, it.name.id)
	}
	return strings.Join(s, " ")
}

func TestLaneTakesByTurnsUpToTheWindow(t *testing.T) {
	l, on := provenLane(2)
	var items []*item
	for _, id := range []string{"a1", "a2", "a3", "b1"} {
		it := newItem(id[:1], id)
		items = append(items, it)
		l.push(it, epoch)
	}
	burst, alone := l.take(10, epoch)
	if got := ids(burst); got != "a1 b1 a2" || alone {
		t.Fatalf("took %s, alone %t", got, alone)
	}
	for _, it := range burst {
		l.wrote(it, on, &answer{}, epoch)
	}
	if burst, _ := l.take(10, epoch); len(burst) != 0 {
		t.Fatalf("took %s beyond the window", ids(burst))
	}
	l.answered(items[1], true)
	if burst, _ := l.take(10, epoch); ids(burst) != "a3" {
		t.Fatalf("took %q where there was room", ids(burst))
	}
}

// A return identifies exactly one message, so two with one name are never in flight.
func TestLaneKeepsEqualNamesApart(t *testing.T) {
	l, on := provenLane(10)
	first, second := newItem("k", "id"), newItem("k", "id")
	l.push(first, epoch)
	l.push(second, epoch)
	burst, _ := l.take(10, epoch)
	if len(burst) != 1 || burst[0] != first {
		t.Fatalf("took %d of one name", len(burst))
	}
	l.wrote(first, on, &answer{}, epoch)
	l.returned[first.name] = "312 NO_ROUTE"
	l.answered(first, true)
	burst, _ = l.take(10, epoch)
	if len(burst) != 1 || burst[0] != second {
		t.Fatal("the second does not follow")
	}
	l.wrote(second, on, &answer{}, epoch)
	l.answered(second, true)
	if first.result.Outcome != publisher.Refused || second.result.Outcome != publisher.Confirmed {
		t.Errorf("%v and %v", first.result, second.result)
	}
}

// When a channel breaks, confirmed messages stay confirmed, the others are Unknown, and from
// then on each that was in flight is tried alone.
func TestLaneBreaks(t *testing.T) {
	l, on := provenLane(10)
	var burst []*item
	for _, id := range []string{"acked", "open", "poison"} {
		l.push(newItem("k", id), epoch)
	}
	waiting := newItem("k", "waiting")
	burst, _ = l.take(10, epoch)
	l.push(waiting, epoch)
	for _, it := range burst {
		l.wrote(it, on, &answer{}, epoch)
	}
	*burst[0].confirm.(*answer) = answer{true, true}
	why := exception{words: "406 PRECONDITION_FAILED - no", code: amqp.PreconditionFailed, named: true, ours: true}
	l.broke(on, why, epoch)
	for i, want := range []publisher.Outcome{publisher.Confirmed, publisher.Unknown, publisher.Unknown} {
		if got := burst[i].result.Outcome; got != want {
			t.Errorf("%s is %v, want %v", burst[i].name.id, got, want)
		}
	}
	if waiting.stage != queued || l.link != nil || l.proven {
		t.Fatalf("after the break: stage %d, link %v, proven %t", waiting.stage, l.link, l.proven)
	}
	passAlone(t, l, waiting)
	again := newItem("k", "poison")
	l.push(again, epoch)
	on = passed(t, l, again)
	l.broke(on, why, epoch)
	l.alone = nil
	if r := again.result; r.Outcome != publisher.Refused || !r.Permanent || r.Reason != why.words {
		t.Errorf("the poison is %+v", r)
	}
	if _, still := l.suspects[again.name]; still {
		t.Error("a message whose fate is known is still suspected")
	}
}

// passed takes an item that must go alone, and writes it on a new link.
func passed(t *testing.T, l *lane, it *item) *link {
	t.Helper()
	burst, alone := l.take(10, epoch.Add(time.Hour))
	if len(burst) != 1 || burst[0] != it || !alone {
		t.Fatalf("took %q, alone %t", ids(burst), alone)
	}
	on := &link{}
	l.link = on
	l.wrote(it, on, &answer{}, epoch)
	return on
}

func passAlone(t *testing.T, l *lane, it *item) {
	t.Helper()
	passed(t, l, it)
	l.passed()
	l.answered(it, true)
}

// A missing exchange refuses all messages that wait for it, and those of the next moment,
// without asking the broker for each.
func TestLaneRefusesForAMissingExchange(t *testing.T) {
	l := newLane("x", 10)
	first, second, third, later := newItem("k", "1"), newItem("k", "2"), newItem("k", "3"), newItem("k", "4")
	l.push(first, epoch)
	l.push(second, epoch)
	on := passed(t, l, first)
	l.broke(on, exception{words: "404 NOT_FOUND - no exchange", code: amqp.NotFound, named: true, ours: true}, epoch)
	l.alone = nil
	l.push(third, epoch)
	for _, it := range []*item{first, second, third} {
		if it.result.Outcome != publisher.Refused || it.result.Permanent {
			t.Errorf("%s is %+v", it.name.id, it.result)
		}
	}
	l.push(later, epoch.Add(verdictTime))
	if later.stage != queued {
		t.Error("the verdict outlives its time")
	}
}

// No room is lost, whatever happens in whatever order: at the end the lane is idle and every
// item has exactly one result.
func TestLaneKeepsCount(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		l, now := newLane("x", 3), epoch
		var all, out []*item
		on := &link{}
		for step := range 200 {
			now = now.Add(time.Duration(r.IntN(100)) * time.Millisecond)
			switch r.IntN(6) {
			case 0, 1:
				it := newItem(fmt.Sprint("k", r.IntN(3)), fmt.Sprint("id", step%7))
				all = append(all, it)
				l.push(it, now)
			case 2, 3:
				burst, alone := l.take(4, now)
				l.link = on
				for i := len(burst) - 1; i >= 0; i-- {
					if r.IntN(5) == 0 {
						l.putBack(burst[i])
						continue
					}
					l.wrote(burst[i], on, &answer{}, now)
					out = append(out, burst[i])
				}
				if alone && burst[0].stage == written {
					l.passed()
				}
				l.alone = nil
			case 4:
				if len(out) > 0 {
					i := r.IntN(len(out))
					if it := out[i]; l.open[it.name] == it {
						l.answered(it, r.IntN(4) > 0)
					}
					out = append(out[:i], out[i+1:]...)
				}
			case 5:
				if r.IntN(4) == 0 {
					l.broke(on, exception{words: "broken", ours: true}, now)
					on = &link{}
				} else if len(all) > 0 {
					l.leave(all[r.IntN(len(all))], "time")
				}
			}
		}
		l.broke(on, exception{words: "end"}, now)
		l.finishQueued(publisher.Result{Outcome: publisher.Down, Reason: "end"})
		l.take(1, now)
		if !l.idle() || len(l.open) != 0 {
			t.Fatalf("seed %d: %d routes and %d messages are left", seed, len(l.routes), len(l.open))
		}
		for _, it := range all {
			if it.stage != finished || it.result.Outcome == 0 {
				t.Fatalf("seed %d: %s has no result", seed, it.name.id)
			}
		}
	}
}

func TestParseTarget(t *testing.T) {
	for channel, want := range map[postdate.Channel]target{
		"rabbitmq:q": {"", "q"}, "rabbitmq:x/k": {"x", "k"}, "rabbitmq:x/a/b": {"x", "a/b"}, "rabbitmq:x/": {"x", ""},
		"rabbitmq:/a/b": {"", "a/b"}, "rabbitmq:a:b": {"", "a:b"},
	} {
		if got, err := parseTarget(channel); err != nil || got != want {
			t.Errorf("%s: %+v, %v", channel, got, err)
		}
	}
	long := postdate.Channel(strings.Repeat("x", 256))
	for _, channel := range []postdate.Channel{"rabbitmq:", "rabbitmq:/", "rabbitmq:" + long, "rabbitmq:x/" + long, "rabbitmq:" + long + "/k", "rabbitmq:\xff"} {
		if got, err := parseTarget(channel); postdate.KindOf(err) != postdate.KindInvalid || err == nil {
			t.Errorf("%.20s: %+v, %v", channel, got, err)
		}
	}
}

// Every target that parses fits AMQP's short strings, and can be rebuilt from its parts.
func FuzzParseTarget(f *testing.F) {
	f.Add("rabbitmq:x/a/b")
	f.Add("rabbitmq:/q")
	f.Fuzz(func(t *testing.T, channel string) {
		got, err := parseTarget(postdate.Channel(channel))
		if err != nil {
			return
		}
		if len(got.exchange) > amqpheader.ShortBytesMax || len(got.key) > amqpheader.ShortBytesMax || got == (target{}) {
			t.Fatalf("%q: %+v", channel, got)
		}
		again, err := parseTarget(postdate.Channel("rabbitmq:" + got.exchange + "/" + got.key))
		if err != nil || again != got {
			t.Fatalf("%q: %+v, then %+v, %v", channel, got, again, err)
		}
	})
}

func TestBackoffGrowsToItsLast(t *testing.T) {
	for attempt := range 100 {
		if d := backoff(attempt, 0); d > backoffLast || d < backoffFirst {
			t.Fatalf("attempt %d waits %s", attempt, d)
		}
	}
	if backoff(0, 0) != backoffFirst || backoff(99, 0) != backoffLast || backoff(99, 0.999) < backoffLast/2 {
		t.Errorf("%s, %s, %s", backoff(0, 0), backoff(99, 0), backoff(99, 0.999))
	}
}
