package mongo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/routertest"
)

// row is a line of the table of commands in DESIGN.md: what one operation sends to a mongos.
type row struct {
	operation string
	rounds    [][]string // the commands of each round trip
	documents string     // that were read and written
}

// tableRows reads the table of commands.
func tableRows(t *testing.T) (rows []row) {
	text, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| operation | commands | round trips | documents |\n")
	if !found {
		t.Fatal("DESIGN.md has no table of commands")
	}
	for _, line := range strings.Split(table, "\n")[1:] {
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if !strings.HasPrefix(line, "|") {
			break
		}
		r := row{operation: strings.TrimSpace(cells[0]), documents: strings.TrimSpace(cells[3])}
		for _, round := range strings.Split(strings.TrimSpace(cells[1]), " → ") {
			r.rounds = append(r.rounds, strings.Split(round, " + "))
		}
		if want := fmt.Sprint(len(r.rounds)); strings.TrimSpace(cells[2]) != want {
			t.Errorf("%s: the table says %s round trips, and has %s", r.operation, cells[2], want)
		}
		rows = append(rows, r)
	}
	return rows
}

// conductor checks the commands of an operation against its row. It lets the commands of a
// round trip continue only once all have come: a command that waits for another's answer is not
// in the same round trip.
type conductor struct {
	mu            sync.Mutex
	rounds        [][]string // still to come; the first one is under way
	gate          chan struct{}
	seen          []string
	read, written int
}

// textOf names a command as the table does.
func textOf(c routertest.Command) string {
	text := fmt.Sprintf("%s %s %s", c.Name, c.Collection, c.Route())
	if c.Transaction {
		text += " in txn"
	}
	return text
}

const roundPatience = 10 * time.Second

// background says whether a command belongs to no operation: what is pending is shared once a second.
func background(c routertest.Command) bool { return c.Collection == "usage" }

func (x *conductor) watch(c routertest.Command) error {
	if background(c) {
		return nil
	}
	x.mu.Lock()
	text := textOf(c)
	x.seen = append(x.seen, text)
	if len(x.rounds) == 0 {
		x.mu.Unlock()
		return errors.New("no command is expected any more: " + text)
	}
	i := slices.Index(x.rounds[0], text)
	if i < 0 {
		defer x.mu.Unlock()
		return fmt.Errorf("expected is one of %q: %s", x.rounds[0], text)
	}
	x.rounds[0] = slices.Delete(slices.Clone(x.rounds[0]), i, i+1)
	gate := x.gate
	if len(x.rounds[0]) == 0 {
		x.rounds, x.gate = x.rounds[1:], make(chan struct{})
		close(gate)
	}
	x.mu.Unlock()
	select {
	case <-gate:
		return nil
	case <-time.After(roundPatience):
		return errors.New("the others of its round trip do not come: " + text)
	}
}

func (x *conductor) answered(c routertest.Command, answer bson.Raw) {
	if background(c) {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if n, ok := answer.Lookup("n").AsInt64OK(); ok {
		x.written += int(n)
	}
	if _, ok := answer.Lookup("value").DocumentOK(); ok {
		x.written++
	}
	for _, batch := range []string{"firstBatch", "nextBatch"} {
		if list, ok := answer.Lookup("cursor", batch).ArrayOK(); ok {
			values, _ := list.Values()
			x.read += len(values)
		}
	}
}

// manyMessages is how many messages the operations of the table are about.
const manyMessages = 200

// TestCommandsThroughAMongos checks every operation against its row of the table in DESIGN.md,
// in an otherwise empty store and in one with many messages: the cost of an operation does not
// depend on what is stored.
func TestCommandsThroughAMongos(t *testing.T) {
	for _, stored := range []int{0, 20_000} {
		t.Run(fmt.Sprint("above ", stored), func(t *testing.T) {
			c, r := behindRouter(t)
			s, err := Open(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			x := &routed{t: t, s: s}
			for range stored / 1000 {
				x.insert(1000, routedNow+1_000_000_000)
			}
			holdTable(x, r)
		})
	}
}

// holdTable runs the operations of the table, and compares what the router sees.
func holdTable(x *routed, r *routertest.Router) {
	t, known := x.t, x.operations()
	for _, row := range tableRows(t) {
		operation := known[row.operation]
		if operation == nil {
			t.Errorf("the table has an operation that this test does not know: %s", row.operation)
			continue
		}
		delete(known, row.operation)
		prepared := operation()
		x := &conductor{rounds: row.rounds, gate: make(chan struct{})}
		r.Watch(x.watch)
		r.Answered(x.answered)
		err := prepared()
		r.Watch(nil)
		r.Answered(nil)
		if got := fmt.Sprintf("%d read, %d written", x.read, x.written); err != nil || len(x.rounds) > 0 || got != row.documents {
			t.Errorf("%s: %v\nsent %q\n%s; the table says %s\nstill to come: %q", row.operation, err, x.seen, got, row.documents, x.rounds)
		}
	}
	for name := range known {
		t.Errorf("the table has no row for %s", name)
	}
}

// routed makes the operations of the table.
type routed struct {
	t      *testing.T
	s      *Store
	made   int
	tokens map[int]uint64
	number uint64
}

const routedNow = postdate.Time(1_900_000_000_000)

// fresh makes messages that are due at a time, in four buckets.
func (x *routed) fresh(n int, at postdate.Time) (all []postdate.Message) {
	for len(all) < n {
		x.made++
		m := postdate.Message{Key: bucket.KeyOf("default", fmt.Sprintf("m%06d", x.made), x.s.Buckets()), Channel: "inbox:a", ExecutionTime: at, Payload: []byte("{}")}
		if m.Digest = postdate.DigestOf(&m, ""); m.Bucket < 4 {
			all = append(all, m)
		}
	}
	return all
}

func (x *routed) insert(n int, at postdate.Time) []postdate.Message {
	all := x.fresh(n, at)
	x.must(x.errOf(x.s.Insert(x.t.Context(), all)))
	return all
}

// insertLabelled inserts messages, of which each other one has a label.
func (x *routed) insertLabelled(n int, at postdate.Time) {
	all := x.fresh(n, at)
	for i := range all {
		all[i].Labels = []string{"a"}[i%2:]
	}
	x.must(x.errOf(x.s.Insert(x.t.Context(), all)))
}

func (x *routed) errOf(results []store.Inserted) error {
	for _, r := range results {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

func (x *routed) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

// own acquires the four buckets once.
func (x *routed) own() {
	if x.tokens != nil {
		return
	}
	x.tokens = map[int]uint64{}
	for b := range 4 {
		got, err := x.s.Acquire(x.t.Context(), []store.Acquisition{{Bucket: b, Owner: "n", Lease: "l"}})
		x.must(err)
		x.tokens[b] = got[0].Partition.Token
	}
}

func (x *routed) claims(to postdate.Time) (all []store.Claim) {
	x.own()
	x.number++
	for b := range 4 {
		all = append(all, store.Claim{
			Bucket: b, Claim: bucket.Claim{Token: x.tokens[b], Number: x.number, To: bucket.UpTo(to)}, Scan: store.Scan{Limit: manyMessages, BytesMax: 1 << 20},
		})
	}
	return all
}

func (x *routed) claim(claims []store.Claim) error {
	for _, r := range x.s.Claim(x.t.Context(), claims) {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

// settlements are of new messages that were claimed.
func (x *routed) settlements(at postdate.Time, how store.Settling) (all []store.Settlement) {
	messages := x.insert(manyMessages, at)
	x.must(x.claim(x.claims(at)))
	for _, m := range messages {
		rec, err := x.s.Get(x.t.Context(), m.Key)
		x.must(err)
		all = append(all, store.Settlement{
			Key: m.Key, ExecutionTime: m.ExecutionTime, Version: rec.Version, Token: x.tokens[m.Bucket], How: how, At: at, AttemptTime: at + 1_000_000, Attempts: 1,
		})
	}
	return all
}

// detaching is the settlement of a new series whose first occurrence is to be retried.
func (x *routed) detaching() store.Settlement {
	x.own()
	m := x.fresh(1, routedNow+500_000)[0]
	m.First, m.Recurrence = m.ExecutionTime, &postdate.Recurrence{Every: time.Second}
	x.must(x.errOf(x.s.Insert(x.t.Context(), []postdate.Message{m})))
	rec, err := x.s.Get(x.t.Context(), m.Key)
	x.must(err)
	return store.Settlement{
		Key: m.Key, ExecutionTime: m.ExecutionTime, Version: rec.Version, Token: x.tokens[m.Bucket], How: store.SettleRetry,
		AttemptTime: m.ExecutionTime + 500, Occurrence: m.First,
		Next: store.Next{Occurrence: m.First + 1000, AttemptTime: m.First + 1000},
	}
}

// operations prepare each operation of the table, and return what runs it.
func (x *routed) operations() map[string]func() func() error {
	all := x.operationsOnMessages()
	maps.Copy(all, x.operationsOfOwners())
	maps.Copy(all, x.operationsOfOthers())
	maps.Copy(all, x.operationsOfJobs())
	maps.Copy(all, x.operationsOfLists())
	maps.Copy(all, x.operationsOnFailed())
	return all
}

// operationsOnMessages are what clients do.
func (x *routed) operationsOnMessages() map[string]func() func() error {
	ctx, s := x.t.Context(), x.s
	return map[string]func() func() error{
		"Insert": func() func() error {
			all := x.fresh(manyMessages, routedNow+500_000)
			return func() error { return x.errOf(s.Insert(ctx, all)) }
		},
		"Insert, an id is taken": func() func() error {
			all := append(x.fresh(manyMessages-1, routedNow+500_000), x.insert(1, routedNow+500_000)...)
			return func() error { return x.errOf(s.Insert(ctx, all)) }
		},
		"Get": func() func() error {
			m := x.insert(1, routedNow+500_000)[0]
			return func() error { _, err := s.Get(ctx, m.Key); return err }
		},
		"Replace": func() func() error {
			m := x.insert(1, routedNow+500_000)[0]
			rec, err := s.Get(ctx, m.Key)
			x.must(err)
			return func() error {
				_, err := s.Replace(ctx, postdate.NewRecord(m, rec.Version+1), rec)
				return err
			}
		},
		"Pause": func() func() error {
			p := x.detaching()
			return func() error { return s.Pause(ctx, p.Key, p.Version) }
		},
		"Trigger": func() func() error {
			p := x.detaching()
			return func() error { return s.Trigger(ctx, p.Key, p.Version, routedNow+400_000) }
		},
		"Cancel": func() func() error {
			var keys []postdate.Key
			for _, m := range x.insert(manyMessages, routedNow+500_000) {
				keys = append(keys, m.Key)
			}
			return func() error {
				for _, r := range s.Cancel(ctx, keys, routedNow) {
					if r.Err != nil {
						return r.Err
					}
				}
				return nil
			}
		},
		"Forget": func() func() error {
			m := x.insert(1, routedNow+500_000)[0]
			c := s.Cancel(ctx, []postdate.Key{m.Key}, routedNow)[0]
			x.must(c.Err)
			return func() error { return s.Forget(ctx, m.Key, c.State.Version) }
		},
	}
}

// operationsOfLists are what clients do to see their messages.
func (x *routed) operationsOfLists() map[string]func() func() error {
	ctx, s := x.t.Context(), x.s
	return map[string]func() func() error{
		"List": func() func() error {
			x.insert(manyMessages, routedNow+600_000)
			return func() error {
				_, err := s.List(ctx, store.ListQuery{Tenant: "default", From: routedNow + 600_000, Limit: 50})
				return err
			}
		},
		"List, with a status": func() func() error {
			x.insert(manyMessages, routedNow+650_000)
			return func() error {
				_, err := s.List(ctx, store.ListQuery{Tenant: "default", Status: postdate.Pending, From: routedNow + 650_000, Limit: 50})
				return err
			}
		},
		"List, with a label": func() func() error {
			x.insertLabelled(manyMessages, routedNow+700_000)
			return func() error {
				_, err := s.List(ctx, store.ListQuery{Tenant: "default", Label: "a", Limit: 50})
				return err
			}
		},
	}
}

// operationsOfOwners are what the owner of a bucket does with what is due.
func (x *routed) operationsOfOwners() map[string]func() func() error {
	ctx, s := x.t.Context(), x.s
	settle := func(at postdate.Time, how store.Settling) func() func() error {
		return func() func() error {
			all := x.settlements(at, how)
			return func() error { return s.Settle(ctx, all) }
		}
	}
	return map[string]func() func() error{
		"Claim, nothing is due": func() func() error {
			all := x.claims(routedNow - 1000)
			return func() error { return x.claim(all) }
		},
		"Claim, nothing is due nor to be said": func() func() error {
			all := x.claims(routedNow - 900)
			for i := range all {
				all[i].IfDue = true
			}
			return func() error { return x.claim(all) }
		},
		"Claim": func() func() error {
			x.insert(manyMessages, routedNow)
			all := x.claims(routedNow)
			return func() error { return x.claim(all) }
		},
		"Settle, delivered":   settle(routedNow+1000, store.SettleDelivered),
		"Settle, again later": settle(routedNow+2000, store.SettleRetry),
		"Settle, an occurrence is retried": func() func() error {
			p := x.detaching()
			return func() error { return s.Settle(ctx, []store.Settlement{p}) }
		},
		"Settle, a failure leaves a message": func() func() error {
			p := x.settlements(routedNow+4000, store.SettleFailed)[:1]
			p[0].FailureChannel = "inbox:failed"
			return func() error { return s.Settle(ctx, p) }
		},
		"Retried": func() func() error {
			p := x.detaching()
			x.must(s.Settle(ctx, []store.Settlement{p}))
			return func() error { _, err := s.Retried(ctx, p.Key); return err }
		},
		"Unpark": func() func() error {
			x.must(s.Settle(ctx, x.settlements(routedNow+3000, store.SettlePark)))
			return func() error {
				_, _, err := s.Unpark(ctx, store.Unpark{Bucket: 1, Token: x.tokens[1], Route: "inbox:a", At: routedNow + 700_000, Limit: 20})
				return err
			}
		},
	}
}

// operationsOfOthers are the rest.
func (x *routed) operationsOfOthers() map[string]func() func() error {
	ctx, s := x.t.Context(), x.s
	return map[string]func() func() error{
		"Parked": func() func() error {
			return func() error { _, err := s.Parked(ctx, []int{5}); return err }
		},
		"Look": func() func() error {
			_, err := s.Renew(ctx, bucket.Lease{ID: "l", Renewals: 1})
			x.must(err)
			return func() error { _, _, err := s.Look(ctx, []int{0, 1, 2, 3}); return err }
		},
		"Acquire": func() func() error {
			return func() error {
				_, err := s.Acquire(ctx, []store.Acquisition{{Bucket: 6, Owner: "n", Lease: "l"}, {Bucket: 7, Owner: "n", Lease: "l"}})
				return err
			}
		},
		"Release": func() func() error {
			return func() error { return s.Release(ctx, []store.Hold{{Bucket: 6, Token: 1}, {Bucket: 7, Token: 1}}) }
		},
		"Renew": func() func() error {
			return func() error { _, err := s.Renew(ctx, bucket.Lease{ID: "l", Renewals: 2}); return err }
		},
		"AppendInbox": func() func() error {
			return func() error { return s.AppendInbox(ctx, x.letters(manyMessages)) }
		},
		"ReadInbox": func() func() error {
			return func() error { _, _, err := s.ReadInbox(ctx, "default", "a", "", manyMessages); return err }
		},
		"ReadPlaces": func() func() error {
			read, _, err := s.ReadInbox(ctx, "default", "a", "", manyMessages)
			x.must(err)
			places := make([]store.InboxPlace, len(read))
			for i := range read {
				places[i] = read[i].Place
			}
			return func() error { _, _, err := s.ReadPlaces(ctx, "default", "a", places); return err }
		},
		"Consumer":    func() func() error { return func() error { _, err := s.Consumer(ctx, routedConsumer); return err } },
		"SetConsumer": func() func() error { return x.setConsumer },
		"Channels":    func() func() error { return func() error { _, err := s.Channels(ctx); return err } },
		"SetChannel":  func() func() error { return x.setChannel },
		"NoteRequest": func() func() error {
			return func() error {
				_, err := s.NoteRequest(ctx, bucket.KeyOf("default", "key", s.Buckets()), postdate.Digest{1}, routedNow)
				return err
			}
		},
		"Expire": func() func() error {
			x.must(s.Settle(ctx, x.settlements(routedNow+4000, store.SettleDelivered)))
			return func() error {
				_, err := s.Expire(ctx, store.Expiry{Buckets: []int{1, 2, 3}, SettledBefore: routedNow + 5000, Limit: 50})
				return err
			}
		},
	}
}

func (x *routed) operationsOfJobs() map[string]func() func() error {
	s, ctx := x.s, context.WithoutCancel(x.t.Context())
	return map[string]func() func() error{
		"CreateJob": func() func() error { return func() error { return s.CreateJob(ctx, routedJob) } },
		"Job": func() func() error {
			x.must(s.CreateJob(ctx, routedJob))
			return func() error { _, err := s.Job(ctx, routedJob.Key); return err }
		},
		"OpenJobs": func() func() error {
			x.must(s.CreateJob(ctx, routedJob))
			return func() error { _, err := s.OpenJobs(ctx, []int{1, 2, 3}); return err }
		},
		"SetJob": func() func() error {
			x.must(s.CreateJob(ctx, routedJob))
			next := routedJob
			next.Version = 2
			return func() error { _, err := s.SetJob(ctx, next); return err }
		},
	}
}

func (x *routed) letters(n int) (all []store.InboxMessage) {
	for i := range n {
		all = append(all, store.InboxMessage{Tenant: "default", Inbox: "a", ScheduleID: fmt.Sprint(i), ExecutionTime: 1, DeliveredAt: routedNow, Payload: []byte("{}")})
	}
	return all
}

func (x *routed) setChannel() error {
	return x.s.SetChannel(context.WithoutCancel(x.t.Context()), store.ChannelSettings{Route: "inbox:a", Paused: true})
}

var routedJob = store.Job{Key: postdate.Key{Bucket: 2, Tenant: "default", ScheduleID: "job"}, Kind: store.JobCancel, CreatedAt: routedNow}

var routedConsumer = store.ConsumerName{Tenant: "default", Inbox: "a", Consumer: "worker"}

func (x *routed) setConsumer() error {
	_, err := x.s.SetConsumer(context.WithoutCancel(x.t.Context()), routedConsumer, 0, store.Consumer{Version: 1, UsedAt: routedNow})
	return err
}
