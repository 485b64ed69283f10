package ingest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// etf1World is a world of that scheduler's records.
func etf1World(t *testing.T) *world {
	w := newWorld(t)
	w.restartEtf1()
	return w
}

func (w *world) restartEtf1() {
	w.restart()
	w.taker.config.Etf1 = true
}

// soon is an epoch a number of seconds after now.
func soon(seconds int) string { return fmt.Sprint(int64(now)/1000 + int64(seconds)) }

// schedule is a record of the key s. A value of "-" is none.
func schedule(offset int64, value, epoch string, more ...string) *Command {
	c := &Command{Body: []byte(value), Records: true, Key: "s", Place: Place{"t", 0, offset}, Stamp: int64(now)}
	if value == "-" {
		c.Body = nil
	}
	c.Headers = headers(append([]string{"scheduler-epoch", epoch, "scheduler-target-topic", "out", "scheduler-target-key", "k"}, more...)...)
	return c
}

// cancelled is a record without a value, as clients send it.
func cancelled(offset int64) *Command {
	c := schedule(offset, "-", "")
	c.Headers = nil
	return c
}

func TestEtf1Message(t *testing.T) {
	in := intake()
	c := schedule(7, "video 1", soon(60), "customer-header", "dummy", "scheduler-timestamp", "1", "scheduler-key", "old", "scheduler-topic", "old",
		"postdate-attempt", "1", "postdate-execution-time", "2020-01-01T00:00:00.000Z", "message-id", "old", "scheduler-epoch", "9")
	c.Key, c.Stamp, c.ContentType = "vid 1/on=line", 1607918336999, "text/plain"
	d := decideEtf1(in, c, now, time.Hour)
	m := d.Message
	if d.Action != Upsert || m.ScheduleID != "vid=201=2Fon=3Dline" || m.Channel != "kafka:out" || m.PartitionKey != "k" || string(m.Payload) != "video 1" ||
		m.ExecutionTime != now/1000*1000+60_000 || m.ContentType != "text/plain" || m.MayRepeat {
		t.Errorf("%+v", d)
	}
	if got, want := fmt.Sprint(m.Headers), "[{customer-header dummy} {postdate-source t/0/7} {scheduler-epoch "+soon(60)+"} {scheduler-key vid 1/on=line} "+
		"{scheduler-target-key k} {scheduler-target-topic out} {scheduler-timestamp 1607918336} {scheduler-topic t}]"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	other := *c
	if other.Place.Offset++; decideEtf1(in, &other, now, time.Hour).Message.Digest == m.Digest {
		t.Error("two records are taken for one")
	}
}

func TestEtf1Channel(t *testing.T) {
	for _, test := range []struct {
		topic, channel string
		pinned         bool
		want           string
	}{
		{"out", "", false, "kafka:out"}, {"out", "kafka:x", false, "kafka:out"}, {"", "rabbitmq:x", false, "rabbitmq:x"}, {"out", "kafka:x", true, "kafka:x"},
	} {
		c := schedule(1, "v", soon(60))
		c.Headers[1].Value, c.Channel, c.Pinned = test.topic, test.channel, test.pinned
		if d := decideEtf1(intake(), c, now, time.Hour); string(d.Message.Channel) != test.want {
			t.Errorf("%+v: %+v", test, d)
		}
	}
	c := schedule(1, "v", soon(60))
	c.Headers = c.Headers[:2]
	if d := decideEtf1(intake(), c, now, time.Hour); d.Message.PartitionKey != "" || !isOf(&d.Message, []postdate.Header{{Name: postdate.HeaderNoKey, Value: "true"}}) {
		t.Errorf("without a target key: %+v", d)
	}
}

func TestEtf1Refusals(t *testing.T) {
	for want, c := range map[string]*Command{
		"it does not say when: give it a header scheduler-epoch":                 schedule(1, "v", ""),
		`header scheduler-epoch is "tomorrow": give seconds`:                     schedule(1, "v", "tomorrow"),
		`header scheduler-epoch is "-5"`:                                         schedule(1, "v", "-5"),
		`header scheduler-epoch is "1893456000000": give seconds`:                schedule(1, "v", "1893456000000"),
		"header mine stands twice":                                               schedule(1, "v", soon(60), "mine", "1", "mine", "2"),
		"header mine is not UTF-8":                                               schedule(1, "v", soon(60), "mine", "\xff"),
		"header mine has a control character":                                    schedule(1, "v", soon(60), "mine", "\x01"),
		"longer ago than --retention, so whether it was delivered is not known":  schedule(1, "v", soon(-3601)),
		"this is a delivery of Postdate's with the scheduler-epoch that it had:": schedule(1, "v", soon(60), "postdate-execution-time", (now/1000*1000 + 60_000).String()),
		"the body is": schedule(1, strings.Repeat("x", 1<<20), soon(60)),
	} {
		if d := decideEtf1(intake(), c, now, time.Hour); d.Action != Refuse || !strings.Contains(d.Reason, want) {
			t.Errorf("%s: %+v", want, d)
		}
	}
	c := schedule(1, "v", soon(60))
	c.Headers[1].Value = ""
	if d := decideEtf1(intake(), c, now, time.Hour); !strings.Contains(d.Reason, "give it a header scheduler-target-topic, or name a channel after =") {
		t.Errorf("%+v", d)
	}
	c = schedule(1, "v", soon(60))
	c.Key = " "
	if d := decideEtf1(intake(), c, now, time.Hour); !strings.Contains(d.Reason, "it has no key") {
		t.Errorf("%+v", d)
	}
}

// The id of each key is valid, and says which key it is.
func FuzzEtf1ID(f *testing.F) {
	for _, key := range []string{"vid1-online", "a/b", "a=2Fb", "=", ".", "..", "…", "\x00\xff", strings.Repeat("x", 128), strings.Repeat("/", 43), "=sha256-1"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if key == "" {
			return
		}
		id := etf1ID(key)
		if err := postdate.CheckScheduleID(id); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for rest := id; rest != ""; {
			var c byte
			if n, _ := fmt.Sscanf(rest, "=%02X", &c); n == 1 && rest[0] == '=' {
				rest = rest[3:]
			} else if c, rest = rest[0], rest[1:]; c == '=' {
				if !strings.HasPrefix(rest, "sha256-") || len(key) <= 42 {
					t.Fatalf("%q has the id %s", key, id)
				}
				return
			}
			b.WriteByte(c)
		}
		if b.String() != key {
			t.Fatalf("%q has the id %s, which is that of %q", key, id, b.String())
		}
	})
}

// Whatever a record holds, it is scheduled with its key and value, for its time, or refused in words.
func FuzzEtf1(f *testing.F) {
	f.Add("vid1-online", "video 1", "1893456000", "online-videos", "vid1", "customer-header", "dummy")
	f.Add("", "", "-1", "", "", "scheduler-key", "\x00")
	f.Add("s", "v", "1e9", "a/b", "\xff", "POSTDATE-x", "y")
	f.Fuzz(func(t *testing.T, key, value, epoch, topic, target, name, more string) {
		c := &Command{Body: []byte(value), Records: true, Key: key, Place: Place{"t", 0, 1}, Stamp: int64(now),
			Headers: headers("scheduler-epoch", epoch, "scheduler-target-topic", topic, "scheduler-target-key", target, name, more)}
		d := decideEtf1(intake(), c, now, time.Hour)
		m := &d.Message
		switch {
		case d.Action == Refuse && d.Reason != "":
		case d.Action != Upsert || string(m.Payload) != value || m.PartitionKey != target || fmt.Sprint(int64(m.ExecutionTime)/1000) != strings.TrimLeft(strings.TrimPrefix(epoch, "+"), "0"),
			string(m.Channel) != "kafka:"+topic, m.ScheduleID != etf1ID(key), !isOf(m, headers("scheduler-key", key, "scheduler-topic", "t", "scheduler-timestamp", soon(0), "scheduler-epoch", epoch)):
			t.Fatalf("%+v", d)
		}
		var l Latest
		l.Note(c)
		if l.Superseded(c) {
			t.Fatal("it replaces itself")
		}
	})
}

// Records schedule, replace, cancel and, once the message is delivered, schedule again. The same records, read again
// after a crash, change nothing, wherever the crash was.
func TestEtf1FromRecords(t *testing.T) {
	all := func() []*Command {
		return []*Command{cancelled(1), schedule(2, "2", soon(60)), schedule(3, "3", soon(30)), cancelled(4), cancelled(5), schedule(6, "6", soon(90)),
			schedule(7, "7", "never"), schedule(8, "8", soon(40)), schedule(9, "8", soon(40))}
	}
	w := etf1World(t)
	woken := 0
	w.taker.config.Scheduled = func(int, postdate.Time) { woken++ }
	w.expect(w.take(all()...), "done done done done done done bad done done")
	w.expect(w.stored(), "s=8/PENDING")
	if woken != 5 {
		t.Errorf("owners are woken %d times", woken)
	}
	for done := range all() {
		w := etf1World(t)
		w.take(all()[:done]...)
		for from := range done + 1 {
			before := w.stored()
			w.restartEtf1()
			w.take(all()[from:done]...)
			w.expect(w.stored(), before)
		}
		w.take(all()[done:]...)
		w.expect(w.stored(), "s=8/PENDING")
		w.now += 40_000
		w.deliver()
		w.restartEtf1()
		w.take(all()...)
		w.expect(w.stored(), "s=8/DELIVERED")
		w.expect(w.take(cancelled(10), schedule(11, "11", soon(90))), "done done")
		w.expect(w.stored(), "s=11/PENDING")
		w.restartEtf1()
		w.take(append(all(), cancelled(10))...)
		w.expect(w.stored(), "s=11/PENDING")
	}
}

// A bad record replaces the one before it all the same: that is not delivered.
func TestEtf1BadReplacement(t *testing.T) {
	w := etf1World(t)
	w.expect(w.take(schedule(1, "1", soon(60)), schedule(2, "2", "")), "done bad")
	w.expect(w.stored(), "s=1/CANCELLED")
	w.expect(w.take(schedule(3, "3", soon(60))), "done")
	w.restartEtf1()
	w.expect(w.take(schedule(2, "2", "")), "done")
	w.expect(w.stored(), "s=3/PENDING")
	w.now += 1000 * 3600 * 25
	w.expect(w.take(schedule(3, "3", soon(60))), "done") // it is still there
	w.expect(w.take(schedule(4, "4", soon(60))), "bad")
	w.expect(w.stored(), "s=3/CANCELLED")
}

// While a message is on its way, its consumer may schedule it again: that waits, and is not lost.
func TestEtf1AgainWhileDelivered(t *testing.T) {
	w := etf1World(t)
	w.expect(w.take(schedule(1, "1", soon(1))), "done")
	w.now += 2000
	settle := w.claimed()
	next, late := schedule(2, "2", soon(60)), cancelled(3)
	w.expect(w.take(next), "again")
	w.expect(w.take(late), "bad") // who cancels is told
	settle()
	w.expect(w.take(next), "done")
	w.expect(w.stored(), "s=2/PENDING")
	w.now += 60_000
	w.claimed()
	next = schedule(4, "4", soon(90))
	for range lateMax {
		w.expect(w.take(next), "again")
	}
	w.expect(w.take(next), "bad")
}

// The store fails before and after each write: the record is tried again, and done once.
func TestEtf1WhenTheStoreFails(t *testing.T) {
	for _, written := range []bool{false, true} {
		w := etf1World(t)
		w.fault = func(*postdate.Message) (error, bool) {
			w.fault = nil
			return postdate.E(postdate.KindUnknown, "the test says so"), written
		}
		first := schedule(1, "1", soon(1))
		w.expect(w.take(first), "again")
		w.expect(w.take(first), "done")
		w.never = postdate.E(postdate.KindUnavailable, "the test says so")
		w.expect(w.take(schedule(2, "2", soon(1))), "again")
		w.never = nil
		w.now += 2000
		w.deliver()
		w.fault = func(*postdate.Message) (error, bool) {
			return postdate.E(postdate.KindUnavailable, "the test says so"), false
		}
		again := schedule(3, "3", soon(60))
		w.expect(w.take(again), "again")
		w.fault = nil
		w.expect(w.take(again), "done")
		w.expect(w.stored(), "s=3/PENDING")
	}
}

// What that scheduler says it has delivered is not delivered again; what was scheduled again since then is.
func TestEtf1Receipts(t *testing.T) {
	receipt := func(offset int64, epoch string, stamp int64) *Command {
		return schedule(offset, "-", epoch, "scheduler-timestamp", fmt.Sprint(stamp), "scheduler-key", "s", "scheduler-topic", "t")
	}
	again := func(offset int64, value string, more ...string) *Command { // of what was delivered before, with all its headers
		return schedule(offset, value, soon(-9), append([]string{"scheduler-timestamp", soon(-500)}, more...)...)
	}
	w := etf1World(t)
	stamp := int64(now) / 1000
	w.expect(w.take(schedule(1, "1", soon(60)), receipt(2, soon(50), stamp), receipt(3, soon(60), stamp-1)), "done done done")
	w.expect(w.stored(), "s=1/PENDING")
	other := receipt(1, soon(60), stamp) // that scheduler may write to another partition
	other.Place.Partition = 1
	w.expect(w.take(other), "done")
	w.expect(w.stored(), "s=1/CANCELLED")

	for _, test := range []struct {
		records []*Command
		want    string // those that are replaced
	}{
		{[]*Command{schedule(1, "1", soon(-9)), receipt(2, soon(-9), stamp)}, "1"},
		{[]*Command{schedule(1, "1", soon(-9)), schedule(2, "2", soon(60)), receipt(3, soon(-9), stamp)}, "1"},
		{[]*Command{schedule(1, "1", soon(-9)), schedule(2, "2", soon(60)), receipt(3, soon(60), stamp)}, "1 2"},
		{[]*Command{schedule(1, "1", soon(-9)), cancelled(2)}, "1"},
		{[]*Command{receipt(1, soon(-9), stamp), schedule(2, "2", soon(-9))}, ""},
		{[]*Command{schedule(1, "1", soon(-9)), schedule(2, "2", "")}, "1"},
		{[]*Command{again(1, "1"), again(2, "-", "scheduler-timestamp", fmt.Sprint(stamp))}, "1"},
	} {
		var l Latest
		for _, c := range test.records {
			l.Note(c)
		}
		var replaced []string
		for _, c := range test.records {
			if c.Body != nil && l.Superseded(c) {
				replaced = append(replaced, fmt.Sprint(c.Place.Offset))
			}
		}
		w.expect(strings.Join(replaced, " "), test.want)
	}
	c := schedule(4, "4", soon(60))
	c.Superseded = true
	w.expect(w.take(c), "done")
	w.expect(w.stored(), "s=1/CANCELLED")
}

// Where the records of a key are in two partitions, as after some were added, the later one counts, whichever is read
// last.
func TestEtf1InTwoPartitions(t *testing.T) {
	in := func(partition int32, seconds int64, c *Command) *Command {
		c.Place.Partition, c.Stamp = partition, c.Stamp+seconds*1000
		return c
	}
	for _, last := range []func() *Command{
		func() *Command { return schedule(5, "old", soon(60)) }, func() *Command { return cancelled(6) }, func() *Command { return schedule(7, "bad", "never") },
	} {
		w := etf1World(t)
		w.expect(w.take(in(0, -60, schedule(4, "older", soon(60))), in(1, 0, schedule(1, "new", soon(90)))), "done done")
		w.restartEtf1()
		w.expect(w.take(in(0, -1, last())), "done")
		w.expect(w.stored(), "s=new/PENDING")
		w.take(in(0, 0, last())) // of two of one second, the one that is read last
		if got := w.stored(); got == "s=new/PENDING" {
			t.Error("what comes later changes nothing")
		}
	}
	w := etf1World(t)
	w.take(schedule(1, "1", soon(60)), in(0, -60, schedule(2, "2", soon(60)))) // in one, the order counts
	w.expect(w.stored(), "s=2/PENDING")
}

// Records without a key replace nothing: each is put aside.
func TestEtf1RecordsWithoutAKey(t *testing.T) {
	w := etf1World(t)
	var l Latest
	all := []*Command{schedule(1, "1", soon(9)), schedule(2, "2", soon(9)), schedule(3, "3", soon(9))}
	for _, c := range all {
		c.Key = ""
		l.Note(c)
	}
	for _, c := range all {
		c.Superseded = l.Superseded(c)
	}
	w.expect(w.take(all...), "bad bad bad")
}

// When a topic is read for the first time, what was due may have been delivered by the other scheduler.
func TestEtf1FirstRead(t *testing.T) {
	for taken, want := range map[postdate.Time]string{now - 60_000: "s=1/PENDING/marked", now - 60_001: "s=1/PENDING", 0: "s=1/PENDING"} {
		w := etf1World(t)
		c := schedule(1, "1", soon(-60))
		c.FirstRead = taken
		w.expect(w.take(c), "done")
		w.expect(w.stored(), want)
	}
}

// claimed claims everything up to now, and returns what settles it.
func (w *world) claimed() (settle func()) {
	var due []store.Settlement
	for b := range 8 {
		got, err := w.Acquire(w.Context(), []store.Acquisition{{Bucket: b, SeenToken: w.token(b), Owner: "o", Lease: "l"}})
		if err != nil || !got[0].OK {
			w.Fatal(got, err)
		}
		token := got[0].Partition.Token
		result := w.Claim(w.Context(), []store.Claim{{Bucket: b, Claim: bucket.Claim{Token: token, Number: got[0].Partition.Claims + 1, To: bucket.UpTo(w.now)}, Scan: store.Scan{Limit: 100, BytesMax: 1 << 20}}})[0]
		if result.Err != nil {
			w.Fatal(result.Err)
		}
		for _, r := range result.Due {
			due = append(due, store.Settlement{Key: r.Key, Version: r.Version, Token: token, How: store.SettleDelivered, At: w.now, Attempts: 1})
		}
	}
	return func() {
		if err := w.Settle(w.Context(), due); err != nil {
			w.Fatal(err)
		}
	}
}
