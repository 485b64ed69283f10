package node_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/publisher/kafka/kafkatest"
)

// etf1 is a topic of kafka-message-scheduler, and what is to become of its schedules.
type etf1 struct {
	name    string
	stamp   time.Time // of all records
	begin   time.Time
	read    time.Time // when a node has read it for the first time
	last    map[string]*kgo.Record
	pending map[string]bool // at the end
}

// schedule makes a record as that scheduler's client library does. It is what is delivered, unless another one of the
// key comes.
func (e *etf1) schedule(key, value, topic string, due time.Time) *kgo.Record {
	r := &kgo.Record{Topic: e.name, Key: []byte(key), Value: []byte(value), Timestamp: e.stamp, Headers: []kgo.RecordHeader{
		{Key: "customer-header", Value: []byte("of " + key)}, {Key: "scheduler-epoch", Value: fmt.Append(nil, due.Unix())},
		{Key: "scheduler-target-topic", Value: []byte(e.name + topic)}, {Key: "scheduler-target-key", Value: []byte("key of " + key)},
	}}
	e.last[key] = r
	return r
}

// remove makes a record that cancels.
func (e *etf1) remove(key string) *kgo.Record {
	delete(e.last, key)
	return &kgo.Record{Topic: e.name, Key: []byte(key)}
}

// receipt is what that scheduler writes once it has delivered r.
func (e *etf1) receipt(r *kgo.Record) *kgo.Record {
	d := e.remove(string(r.Key))
	d.Headers = append(d.Headers, r.Headers...)
	for name, value := range e.added(r) {
		d.Headers = append(d.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return d
}

func (e *etf1) added(r *kgo.Record) map[string]string {
	return map[string]string{"scheduler-timestamp": fmt.Sprint(e.stamp.Unix()), "scheduler-key": string(r.Key), "scheduler-topic": e.name}
}

// check holds a delivery against its schedule.
func (e *etf1) check(t *testing.T, got *kgo.Record) (key string) {
	t.Helper()
	key = header(got, "scheduler-key")
	r := e.last[key]
	if r == nil {
		t.Errorf("%s: %q has arrived with %s", testrun.Broken, key, got.Value)
		return key
	}
	due := time.Unix(0, 0)
	want := e.added(r)
	for _, h := range r.Headers {
		if want[h.Key] = string(h.Value); h.Key == "scheduler-epoch" {
			var s int64
			if _, err := fmt.Sscan(string(h.Value), &s); err != nil {
				t.Fatal(err)
			}
			due = time.Unix(s, 0)
		}
	}
	own := map[string]string{"postdate-attempt": "1", "postdate-execution-time": due.UTC().Format("2006-01-02T15:04:05.000Z"), "content-type": "", "message-id": etf1ID(key), "postdate-schedule-id": etf1ID(key)}
	maps.Copy(want, own)
	if due.Before(e.begin) || due.Before(e.read) && header(got, "postdate-possible-duplicate") != "" { // that scheduler may have delivered it
		want["postdate-possible-duplicate"] = "true"
	}
	headers := map[string]string{}
	for _, h := range got.Headers {
		headers[h.Key] = string(h.Value)
	}
	if !maps.Equal(headers, want) || len(got.Headers) != len(want) {
		t.Errorf("%s: %q has\n     %v\nwant %v", testrun.Broken, key, headers, want)
	}
	if string(got.Key) != "key of "+key || string(got.Value) != string(r.Value) || got.Topic != want["scheduler-target-topic"] {
		t.Errorf("%s: %q has arrived in %s with the key %q and %s", testrun.Broken, key, got.Topic, got.Key, got.Value)
	}
	if got.Timestamp.Before(due) {
		t.Errorf("%s: %q has arrived at %s, before %s", testrun.Broken, key, got.Timestamp, due)
	}
	return key
}

func etf1ID(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "/", "=2F"), " ", "=20")
}

// past is what that scheduler leaves: a third is delivered, a third replaced, and the rest fell due since it stopped.
// One record was never delivered.
func (e *etf1) past(count int) (rs []*kgo.Record) {
	for i := range count {
		r := e.schedule(fmt.Sprint("past/", i), "past", "-a", e.begin.Add(-time.Duration(i+1)*time.Second))
		rs = append(rs, r)
		switch i % 3 {
		case 0:
			rs = append(rs, e.receipt(r))
		case 1:
			rs = append(rs, e.schedule(string(r.Key), "moved", "-a", e.soon(i)))
		}
	}
	rs = append(rs, e.schedule("forgotten", "", "-a", e.begin.AddDate(0, -1, 0)))
	delete(e.last, "forgotten")
	return rs
}

func (e *etf1) soon(i int) time.Time { return e.begin.Add(time.Duration(5+i%20) * time.Second) }

// etf1Count is how many schedules there are beside the past ones. The second half of them changes while a node has
// them, so what changes there is not due soon: no change comes too late, however slow the machine is.
const etf1Count = 10_000

// first is the first record of a schedule, and change the one after it, if there is one.
func (e *etf1) first(i int) *kgo.Record {
	due := e.soon(i)
	if i%10 >= 6 || i%10 >= 4 && i >= etf1Count/2 {
		due = e.begin.Add(time.Hour)
	}
	e.pending[e.id(i)] = i%10 == 9 || i%10 == 4 && i >= etf1Count/2
	return e.schedule(e.id(i), fmt.Sprint("first ", i), "-a", due)
}

func (e *etf1) change(i int) []*kgo.Record {
	switch i % 10 {
	case 4: // later
		due := e.soon(i).Add(8 * time.Second)
		if e.pending[e.id(i)] {
			due = e.begin.Add(2 * time.Hour)
		}
		return []*kgo.Record{e.schedule(e.id(i), fmt.Sprint("later ", i), "-a", due)}
	case 5, 8:
		return []*kgo.Record{e.remove(e.id(i))}
	case 6: // earlier
		return []*kgo.Record{e.schedule(e.id(i), fmt.Sprint("earlier ", i), "-a", e.soon(i))}
	case 7: // elsewhere
		return []*kgo.Record{e.schedule(e.id(i), fmt.Sprint("elsewhere ", i), "-b", e.soon(i))}
	}
	return nil
}

func (e *etf1) id(i int) string { return fmt.Sprintf("video/%d online", i) }

// arrived waits until all that is not pending has arrived, and checks it.
func (e *etf1) arrived(t *testing.T, broker kafkatest.Client) {
	t.Helper()
	all, other := map[string]int{}, 0
	for key, r := range e.last {
		if !e.pending[key] {
			all[key] = 1
			if strings.HasPrefix(string(r.Value), "elsewhere") {
				other++
			}
		}
	}
	seen := map[string]int{}
	for topic, count := range map[string]int{"-a": len(all) - other, "-b": other} {
		for _, r := range broker.Take(e.name+topic, count, kafkatest.ReadCommitted) {
			seen[e.check(t, r)]++
		}
	}
	for key, times := range seen {
		if times != all[key] {
			t.Errorf("%s: %q has arrived %d times, want %d", testrun.Broken, key, times, all[key])
		}
	}
	if len(seen) != len(all) {
		t.Errorf("%s: %d of %d have arrived", testrun.Broken, len(seen), len(all))
	}
}

// taken waits until the offsets of the topic's first records are committed.
func (e *etf1) taken(t *testing.T, address string, count int) {
	t.Helper()
	err := nodetest.Poll(patient(t), func() (bool, error) {
		_, sum := offsetsOf(t, address, e.name)
		return sum == int64(count), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestMigrationFromKafkaMessageScheduler: a node takes over a topic with ten thousand schedules of which some were
// delivered, replaced or cancelled, while clients go on. It is restarted in the middle, and reads the topic again from
// the start. Each schedule is delivered once, as that scheduler would. What docs/migrate-from-kafka-message-scheduler.md
// says then makes the topic ready for the way back.
func TestMigrationFromKafkaMessageScheduler(t *testing.T) {
	address := kafkatest.URI(t)
	broker := kafkatest.NewClient(t, address)
	e := &etf1{name: fmt.Sprint("schedules-", time.Now().UnixNano()), begin: time.Now(), last: map[string]*kgo.Record{}, pending: map[string]bool{}}
	e.stamp = e.begin.Add(-24 * time.Hour)
	broker.CreateTopic(e.name, 3, map[string]string{"cleanup.policy": "compact"})
	for topic, partitions := range map[string]int{".postdate-rejected": 1, "-a": 2, "-b": 2} {
		broker.CreateTopic(e.name+topic, partitions, nil)
	}
	left := e.past(300)
	for i := range etf1Count {
		left = append(left, e.first(i))
	}
	for i := range etf1Count / 2 {
		left = append(left, e.change(i)...)
	}
	send(t, address, left...)

	c := config(t)
	c.Kafka, c.Ingest = node.Kafka{Seeds: []string{address}}, []string{"etf1+kafka:" + e.name}
	n, _ := start(t, c)
	e.taken(t, address, len(left))
	e.read = time.Now()
	var changes []*kgo.Record
	for i := etf1Count / 2; i < etf1Count; i++ {
		changes = append(changes, e.change(i)...)
	}
	send(t, address, changes...)
	e.taken(t, address, len(left)+len(changes))
	broker.Take(e.name+"-a", 1_000, kafkatest.ReadCommitted)
	stop(t, n)
	n, _ = start(t, c)
	e.arrived(t, broker)
	stop(t, n)

	// The topic is read again from the start, by a node that has its store.
	forgetOffsets(t, address, e.name)
	n, api := start(t, c)
	e.taken(t, address, len(left)+len(changes))
	e.read = time.Now()
	send(t, address, e.schedule("end", "", "-a", time.Now().Add(time.Second)))
	e.arrived(t, broker)
	for _, r := range broker.TakeAll(e.name+".postdate-rejected", kafkatest.ReadCommitted) {
		if string(r.Key) != "forgotten" || !strings.Contains(header(r, "postdate-rejected-reason"), "longer ago than --retention") {
			t.Errorf("%s is rejected: %s", r.Key, header(r, "postdate-rejected-reason"))
		}
	}
	e.wayBack(t, address, api, n)
}

// wayBack makes the topic ready for that scheduler, and checks that of what is not past it would deliver only what is
// pending.
func (e *etf1) wayBack(t *testing.T, address string, api *nodetest.Client, n *node.Node) {
	t.Helper()
	wait := map[string]bool{}
	err := nodetest.Poll(patient(t), func() (bool, error) { // until what has arrived is settled
		clear(wait)
		for m, err := range api.List(patient(t), client.Filter{Status: client.Pending}) {
			if err != nil {
				return false, err
			}
			key := m.Headers["scheduler-key"]
			if wait[key] = true; e.last[key] != nil && string(m.Payload) != string(e.last[key].Value) {
				t.Errorf("%s: %q is %s", testrun.Broken, key, m.Payload)
			}
		}
		return len(wait) == 1_500, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var over []*kgo.Record
	for _, status := range []client.Status{client.Delivered, client.Cancelled} {
		for m, err := range api.List(patient(t), client.Filter{Status: status}) {
			if err != nil {
				t.Fatal(err)
			}
			over = append(over, &kgo.Record{Topic: e.name, Key: []byte(m.Headers["scheduler-key"])})
		}
	}
	stop(t, n)
	send(t, address, over...)
	latest := map[string]bool{}
	for _, r := range kafkatest.NewClient(t, address).TakeAll(e.name, kafkatest.ReadCommitted) {
		if key := string(r.Key); r.Value != nil && key != "forgotten" {
			latest[key] = true
		} else {
			delete(latest, key)
		}
	}
	if !maps.Equal(latest, wait) {
		t.Errorf("%d schedules are in the topic, and %d are pending", len(latest), len(wait))
	}
}

// forgetOffsets deletes the group that has committed something of a topic.
func forgetOffsets(t *testing.T, address, topic string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	req := kmsg.NewPtrDeleteGroupsRequest()
	group, _ := offsetsOf(t, address, topic)
	req.Groups = []string{group}
	err = nodetest.Poll(patient(t), func() (bool, error) { // until its members have left
		resp, err := req.RequestWith(patient(t), cl)
		if err != nil {
			return false, err
		}
		if err = kerr.ErrorForCode(resp.Groups[0].ErrorCode); errors.Is(err, kerr.NonEmptyGroup) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// offsetsOf returns the group that has committed offsets of a topic, and their sum.
func offsetsOf(t *testing.T, address, topic string) (group string, sum int64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	groups, err := kmsg.NewPtrListGroupsRequest().RequestWith(patient(t), cl)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups.Groups {
		req, asked := kmsg.NewPtrOffsetFetchRequest(), kmsg.NewOffsetFetchRequestGroup()
		req.Group, asked.Group = g.Group, g.Group
		req.Groups = append(req.Groups, asked)
		resp, err := req.RequestWith(patient(t), cl)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range resp.Groups {
			for _, of := range g.Topics {
				for _, p := range of.Partitions {
					if of.Topic == topic {
						group, sum = g.Group, sum+max(p.Offset, 0)
					}
				}
			}
		}
	}
	return group, sum
}
