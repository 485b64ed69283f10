package ingest

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/store"
)

// taskWorld is a world of task definitions.
func taskWorld(t *testing.T) *world {
	w := newWorld(t)
	w.restartTasks()
	return w
}

func (w *world) restartTasks() {
	w.restart()
	w.taker.config.Tasks = true
}

// task is a record with a definition of the task s. data is its data; "": it is a DELETE.
func task(offset int64, action, data string) *Command {
	body := fmt.Sprintf(`{"host":"default","name":"s","action":%q`, action)
	if data != "" {
		body += `,"frequency":{"timeUnit":"HOURS","time":1},"topic":"jobs","data":` + data
	}
	return record(offset, body+"}")
}

// avroOf is a definition as a schema registry's serializer writes it.
func avroOf(t *testing.T, definition map[string]any) []byte {
	t.Helper()
	value, err := taskSchemas[0].Encode(definition)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, 77), value...)
}

// Records insert a task, update it, delete it, and insert it again. The same records, read again after a crash,
// change nothing, wherever the crash was.
func TestTasksFromRecords(t *testing.T) {
	all := func() []*Command {
		return []*Command{task(1, "UPDATE", "1"), task(2, "INSERT", "2"), task(3, "INSERT", "3"), task(4, "UPDATE", "4"), task(5, "DELETE", ""),
			task(6, "DELETE", ""), task(7, "UPDATE", "7"), task(8, "INSERT", "8"), task(9, "UPDATE", "9")}
	}
	w := taskWorld(t)
	woken := 0
	w.taker.config.Scheduled = func(int, postdate.Time) { woken++ }
	w.expect(w.take(all()...), "bad done bad done done done bad done done")
	if woken != 4 {
		t.Errorf("owners are woken %d times", woken)
	}
	families, err := w.sums.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{3, 1, 1, 2, 2} { // bad, cancelled, repeated, replaced, scheduled
		if got := families[0].Metric[i].Counter.GetValue(); got != want {
			t.Errorf("%v has %v, want %v", families[0].Metric[i].Label, got, want)
		}
	}
	m := w.get("task:s")
	if m.Channel != "kafka:jobs" || m.PartitionKey != "s" || m.Recurrence.Every != time.Hour || m.Changes != 1 || string(m.Payload) != "9" ||
		fmt.Sprint(m.Headers) != "[{postdate-source t/0/9} {task-host default} {task-name s} {task-unit HOURS}]" {
		t.Errorf("%+v", m)
	}
	for done := range all() {
		w := taskWorld(t)
		w.take(all()[:done]...)
		for from := range done + 1 {
			before := w.stored()
			w.restartTasks()
			w.take(all()[from:done]...)
			w.expect(w.stored(), before)
		}
		w.take(all()[done:]...)
		w.expect(w.stored(), "task:s=9/PENDING")
	}
}

// The store fails before and after each write: the record is tried again, and done once.
func TestTasksWhenTheStoreFails(t *testing.T) {
	for _, written := range []bool{false, true} {
		w := taskWorld(t)
		w.fault = func(*postdate.Message) (error, bool) {
			w.fault = nil
			return postdate.E(postdate.KindUnknown, "the test says so"), written
		}
		insert := task(1, "INSERT", "1")
		w.expect(w.take(insert, task(2, "UPDATE", "2")), "again again")
		w.expect(w.take(insert, task(2, "UPDATE", "2")), "done done")
		w.expect(w.stored(), "task:s=2/PENDING")
		w.never = postdate.E(postdate.KindUnavailable, "the test says so")
		w.expect(w.take(task(3, "UPDATE", "3")), "again")
		w.never = postdate.E(postdate.KindTooLarge, "the test says so")
		w.expect(w.take(task(3, "UPDATE", "3")), "bad")
		w.never = postdate.E(postdate.KindConflict, "the test says so")
		w.expect(w.take(task(3, "UPDATE", "3")), "again")
	}
}

// While a record is carried out, somebody else inserts the task, or deletes it.
func TestTasksBesideOthers(t *testing.T) {
	w := taskWorld(t)
	other := func(action, data string) func() {
		return func() {
			c := task(1, action, data)
			c.Place.Topic = "other"
			w.expect(w.take(c), "done")
		}
	}
	w.between = other("INSERT", "1")
	w.expect(w.take(task(2, "INSERT", "2")), "bad")
	w.between = other("UPDATE", "3")
	w.expect(w.take(task(4, "UPDATE", "4")), "done")
	w.between = other("DELETE", "")
	w.expect(w.take(task(5, "UPDATE", "5")), "bad")
	w.between = other("INSERT", "6")
	w.expect(w.take(task(7, "INSERT", "7")), "bad")
	w.expect(w.stored(), "task:s=6/PENDING")
}

// A DELETE whose outcome is unknown, after the series ended and before its retried occurrences did, goes on.
func TestTaskDeletedInPart(t *testing.T) {
	w := taskWorld(t)
	w.expect(w.take(task(1, "INSERT", "1")), "done")
	left := w.nextOf("task:s", store.SettleRetry)
	w.retried = postdate.E(postdate.KindUnknown, "the test says so")
	remove := task(2, "DELETE", "")
	w.expect(w.take(remove), "again")
	w.expect(w.take(remove), "again")
	w.retried = nil
	w.expect(w.take(remove), "done")
	w.expect(w.stored(), left+"=1/CANCELLED task:s=1/CANCELLED")
}

// While an occurrence is on its way, a DELETE ends the task, and an UPDATE, and an INSERT after the DELETE, wait
// until it is over.
func TestTasksInFlight(t *testing.T) {
	w := taskWorld(t)
	w.expect(w.take(task(1, "INSERT", "1")), "done")
	key := w.get("task:s").Key
	w.now = w.get("task:s").Occurrence
	w.deliver() // it is claimed; this settlement is none of a series
	update := task(2, "UPDATE", "2")
	w.expect(w.take(update), "again")
	settle := func() {
		rec := w.get("task:s")
		err := w.Settle(context.Background(), []store.Settlement{{Key: key, Version: rec.Version, Token: w.token(key.Bucket), How: store.SettleDelivered, At: w.now,
			Attempts: 1, Occurrence: rec.Occurrence, Next: store.Next{Occurrence: rec.Occurrence + 3_600_000, AttemptTime: rec.Occurrence + 3_600_000}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	settle()
	w.expect(w.take(update), "done")
	w.now = w.get("task:s").Occurrence
	w.deliver()
	remove, insert := task(3, "DELETE", ""), task(4, "INSERT", "4")
	w.expect(w.take(remove, insert), "again again")
	settle()
	w.expect(w.stored(), "task:s=2/CANCELLED")
	w.expect(w.take(remove, insert), "done done")
	w.expect(w.stored(), "task:s=4/PENDING")

	w.now = w.get("task:s").Occurrence
	w.deliver()
	update = task(5, "UPDATE", "5")
	for range lateMax {
		w.expect(w.take(update), "again")
	}
	w.expect(w.take(update), "bad") // it must not hold up others for ever
}

// A record that is read again after a client has changed what it said changes nothing.
func TestTaskChangedByAClient(t *testing.T) {
	w := taskWorld(t)
	w.expect(w.take(task(1, "INSERT", "1"), task(2, "UPDATE", "2")), "done done")
	client := task(0, "UPDATE", "3")
	read, err := w.taker.config.Intake.ReadTask(client.Body, api.Offer{Now: w.now})
	if err != nil {
		t.Fatal(err)
	}
	old := w.get("task:s")
	if _, err := read.Apply(context.Background(), w, &old, w.now, w.now); err != nil {
		t.Fatal(err)
	}
	for _, then := range []string{"task:s=3/PENDING", "task:s=3/CANCELLED"} {
		w.restartTasks()
		w.expect(w.take(task(1, "INSERT", "1"), task(2, "UPDATE", "2")), "done done")
		w.expect(w.stored(), then)
		w.Cancel(context.Background(), []postdate.Key{old.Key}, w.now)
	}
}

// What is no task definition of the source's tenant is put aside with a reason.
func TestBadTasks(t *testing.T) {
	w := taskWorld(t)
	raw := avroOf(t, map[string]any{"host": "default", "name": "s", "action": "INSERT", "topic": "jobs"})
	elsewhere := task(1, "INSERT", "1")
	elsewhere.Body = []byte(strings.Replace(string(elsewhere.Body), "default", "acme", 1))
	faulty := task(1, "INSERT", "1")
	faulty.Fault = "too many headers"
	for want, c := range map[string]*Command{
		"a record without a value is no task": record(1, ""),
		"the tenant default":                  elsewhere,
		"too many headers":                    faulty,
		"(at /frequency)":                     {Body: raw},
		"(at /action)":                        task(1, "insert", ""),
		"neither JSON nor a TaskDefinition":   {Body: raw[:len(raw)-2]},
		"nor a TaskDefinition":                {Body: append(raw[:len(raw):len(raw)], 0)},
		"it is neither JSON nor a":            {Body: []byte("\x00\x00\x00\x00\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")},
		"not JSON":                            {Body: []byte("\x00\x00\x00")},
		"the body is empty":                   {Body: []byte{}},
		"UTF-8":                               {Body: avroOf(t, map[string]any{"host": "default", "name": "\xff", "action": "DELETE", "topic": "jobs"})},
		"there is no broker inbox":            record(1, `{"host":"default","name":"s","action":"INSERT","frequency":{"timeUnit":"DAYS","time":1},"topic":"inbox:x"}`),
	} {
		if w.expect(w.take(c), "bad"); !strings.Contains(c.result.Reason, want) {
			t.Errorf("%s: %s", want, c.result.Reason)
		}
	}
	w.expect(w.stored(), "")
}

// A definition in Avro means the same as in JSON, and a source can name the channel in place of its topic.
func TestTasksInAvro(t *testing.T) {
	for _, c := range []*Command{{}, {Channel: "kafka:other"}, {Channel: "kafka:pinned", Pinned: true, Sent: now - 7_200_000}} {
		start, channel := int64(now+1234), "kafka:jobs"
		if c.Pinned {
			channel = c.Channel
		}
		definition := map[string]any{"host": "default", "name": "s/ü", "action": "INSERT", "topic": "jobs", "start": start, "data": map[string]any{"a": "<1>"},
			"frequency": map[string]any{"timeUnit": "MINUTES", "time": 5}}
		c.Body, c.Headers = avroOf(t, definition), headers("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "Tracestate", "a=1", "x", "y", "tracestate", "b=2")
		d := decideTask(intake(), c, now)
		if m := &d.Message; d.Action != Define || m.ScheduleID != "task:s=2F=C3=BC" || string(m.Channel) != channel || m.First != postdate.Time(start) ||
			string(m.Payload) != `{"a":"<1>"}` || m.Recurrence.Every != 5*time.Minute || m.Traceparent == "" || m.Tracestate != "a=1,b=2" || m.CreatedAt != now {
			t.Errorf("%+v", d)
		}
		definition["start"], definition["data"] = nil, nil
		c.Body = avroOf(t, definition)
		if d := decideTask(intake(), c, now); string(d.Message.Payload) != "null" || d.Message.First != 1_800_000_060_000 {
			t.Errorf("%+v", d)
		}
		for _, data := range []any{nil, map[string]any{}, map[string]any{"": ""}, map[string]any{"a": "b", "": "c"}} { // as it was before start
			definition["data"] = data
			value, err := taskSchemas[1].Encode(definition)
			if err != nil {
				t.Fatal(err)
			}
			c.Body = append([]byte{0, 0, 0, 0, 9}, value...)
			if d := decideTask(intake(), c, now); d.Action != Define || d.Message.First != 1_800_000_060_000 || data == nil != (string(d.Message.Payload) == "null") {
				t.Errorf("%v: %+v", data, d)
			}
		}
	}
}

// FuzzTask: whatever a record holds, it is refused, or is a task that the source's tenant may define.
func FuzzTask(f *testing.F) {
	f.Add(task(1, "INSERT", `{"a":1}`).Body)
	f.Add(task(1, "DELETE", "").Body)
	f.Add([]byte("\x00\x00\x00\x00\x01\x0edefault\x02s\x00\x02\x02\x02\x08jobs\x00\x00"))
	f.Fuzz(func(t *testing.T, body []byte) {
		d := decideTask(intake(), &Command{Body: body, Records: true, Place: Place{"t", 0, 1}}, now)
		if d.Action == Refuse {
			if d.Reason == "" || d.task != nil {
				t.Fatalf("%q is refused: %+v", body, d)
			}
			return
		}
		m := &d.Message
		if d.Action != Define || m.Tenant != postdate.DefaultTenant || !strings.HasPrefix(m.ScheduleID, "task:") || postdate.CheckScheduleID(m.ScheduleID) != nil {
			t.Fatalf("%q means %+v", body, d)
		}
		if d.task.Action != api.DeleteTask && (m.First <= now || len(m.Payload) > 1000 || m.Recurrence.Every < postdate.EveryMin || m.Channel == "") {
			t.Fatalf("%q makes %+v", body, m)
		}
	})
}
