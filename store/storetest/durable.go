package storetest

import (
	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

func durable() []check {
	return []check{
		{"an inserted message survives", func(x *trial) {
			alone := x.add(t0)
			batch := []postdate.Message{x.message(t0), x.messageIn(abroad, tenant, t0+1),
				x.messageIn(0, "tenant-b", t0)}
			x.insert(batch...)
			x.crash()
			for _, m := range append(batch, alone) {
				x.wantRecord(x.get(m.Key), fresh(m))
			}
			x.wantDue(everything(home, x.own(home), t0), alone, batch[0])
		}},
		{"an id that was taken is still taken", durableTaken},
		{"a replace survives", durableReplace},
		{"a cancel survives, and no scan returns the message", func(x *trial) {
			m := x.add(t0)
			x.wantCancelled(m)
			want := x.get(m.Key)
			x.crash()
			x.wantRecord(x.get(m.Key), want)
			x.wantDue(everything(home, x.own(home), t0))
		}},
		{"labels survive, and those that were replaced or expired stay away", labelsSurvive},
		{"settlements survive", durableSettle},
		{"logs of attempts survive", durableAttempts},
		{"redrives and purges survive", durableRedriven},
		{"what became of a series survives, and what it left to be retried", durableSeries},
		{"what failed messages left for their failure channels survives", durableFailures},
		{"that a series is ending survives, and so does its end", durableEnding},
		{"what was changed, paused, at rest and triggered of series survives", durableChanges},
		{"what is set of a channel survives", channelsSurvive},
		{"what is set and counted for tenants survives", tenantsSurvive},
		{"API keys survive, and revoked ones stay away", keysSurvive},
		{"what idempotency keys stand for survives", requestsSurvive},
		{"consumers of inboxes survive, and forgotten ones stay away", consumersSurvive},
		{"how far jobs have come survives, and forgotten ones stay away", jobsSurvive},
		{"what is parked and unparked survives", durableParked},
		{"tokens, owners, checkpoint and claimed survive, and so does the fence", durableFence},
		{"inbox messages and cursors survive", func(x *trial) {
			x.appendInbox(letter("news", 1), letter("news", 2))
			_, next := x.readInbox(tenant, "news", "", 1)
			x.crash()
			x.appendInbox(letter("news", 3))
			got, _ := x.readInbox(tenant, "news", next, plenty)
			x.wantLetters(got, letter("news", 2), letter("news", 3))
		}},
		{"what was forgotten stays away, and the next message with its id survives", durableForgotten},
		{"what expired stays away, and inbox cursors go on", func(x *trial) {
			m := x.add(t0)
			x.wantCancelled(m)
			x.appendInbox(letter("news", 1), letter("news", 2))
			_, next := x.readInbox(tenant, "news", "", plenty)
			x.expire(postdate.LatestTime, postdate.LatestTime, plenty, 3)
			x.crash()
			x.wantGone(m)
			x.appendInbox(letter("news", 3))
			got, _ := x.readInbox(tenant, "news", next, plenty)
			x.wantLetters(got, letter("news", 3))
		}},
		{"many messages survive many ends", durableMany},
	}
}

func durableReplace(x *trial) {
	m := x.add(t0)
	next := changed(m)
	next.ExecutionTime = t0 + 10
	want := x.replace(next)
	x.crash()
	x.wantRecord(x.get(m.Key), want)
	token := x.own(home)
	x.wantDue(everything(home, token, t0+9))
	x.wantDue(everything(home, token, t0+10), next)
}

// crash ends the store and opens what is left of it.
func (x *trial) crash() {
	x.Helper()
	n, name := x.store.Buckets(), x.store.Name()
	x.store = x.reopen(x.store)
	if got := x.store.Buckets(); got != n {
		x.Fatalf("the store had %d buckets and has %d", n, got)
	}
	if got := x.store.Name(); got != name || got == "" {
		x.Fatalf("the store was called %q and is called %q", name, got)
	}
}

// survive expects that messages are after a crash what they were before it, and returns them.
func (x *trial) survive(keys []postdate.Key) (before []postdate.Record) {
	x.Helper()
	for _, key := range keys {
		before = append(before, x.get(key))
	}
	x.shareUsage()
	x.crash()
	for _, r := range before {
		x.wantRecord(x.get(r.Key), r)
	}
	return before
}

func durableTaken(x *trial) {
	m := x.add(t0)
	x.crash()
	r := x.store.Insert(x.ctx, []postdate.Message{m, changed(m)})
	if want := (store.Inserted{ExecutionTime: t0, Status: postdate.Pending}); r[0] != want {
		x.Errorf("inserting it again: got %+v, want %+v", r[0], want)
	}
	x.wantKind(r[1].Err, postdate.KindExists)
}

func durableSettle(x *trial) {
	token := x.own(home)
	var messages []postdate.Message
	var want []postdate.Record
	for _, how := range ways {
		m := x.add(t0)
		x.claim(everything(home, token, t0))
		s := x.retryAt(m, token, t0+20)
		s.How, s.PossibleDuplicate = how, true
		x.settle(s)
		messages, want = append(messages, m), append(want, x.get(m.Key))
	}
	x.crash()
	for i, m := range messages {
		x.wantRecord(x.get(m.Key), want[i])
	}
	x.wantDue(everything(home, x.own(home), t0+30), messages[1], messages[3]) // the retried one and the parked one
	x.expire(postdate.LatestTime, 0, plenty, 2)
}

func durableForgotten(x *trial) {
	m, next := x.add(t0), x.add(t0)
	for _, m := range []postdate.Message{m, next} {
		x.wantCancelled(m)
		x.forget(m)
	}
	x.insert(next)
	want := x.get(next.Key)
	x.crash()
	x.wantGone(m)
	x.wantRecord(x.get(next.Key), want)
	x.expire(postdate.LatestTime, 0, plenty, 0)
	x.wantDue(everything(home, x.own(home), t0), next)
}

func durableParked(x *trial) {
	a, b := x.add(t0), x.add(t0, onRoute("kafka:b"))
	token := x.own(home)
	x.park(token, a, b)
	x.unpark(token, orders, t0+5, plenty)
	x.crash()
	x.wantParked([]int{home}, store.ParkedRoute{Bucket: home, Route: "kafka:b"})
	x.wantDue(everything(home, x.own(home), t0+9), a)
	x.wantDue(everything(home, x.own(home), parkedUntil(b)), a, b)
}

func durableFence(x *trial) {
	m, behind := x.add(t0), x.add(t0, onRoute("kafka:slow"))
	stale := x.own(home)
	token := x.own(home)
	c := everything(home, token, t0)
	c.Checkpoint, c.Behind = t0-10, map[postdate.Route]bucket.Position{"kafka:slow": bucket.UpTo(t0 - 1)}
	x.claim(c)
	x.own(abroad)
	x.release(store.Hold{Bucket: abroad, Token: x.partition(abroad).Token})
	here, there := x.partition(home), x.partition(abroad)
	x.crash()
	for _, was := range []bucket.Partition{here, there} {
		if got := x.partition(was.Bucket); !got.Equal(was) {
			x.Errorf("the record is %+v, was %+v", got, was)
		}
	}
	x.wantTooLate(m)
	x.wantCancelled(behind)
	x.wantFenced(stale)
	x.wantDue(c, m)
	if next := x.own(home); next != token+1 {
		x.Errorf("the next token is %d, want %d", next, token+1)
	}
}

func durableMany(x *trial) {
	var all []postdate.Message
	for i := range postdate.Time(5) {
		var batch []postdate.Message
		for range 50 {
			batch = append(batch, x.message(t0+i))
		}
		x.insert(batch...)
		all = append(all, batch...)
		x.crash()
	}
	token := x.own(home)
	x.wantDue(everything(home, token, t0+9), all...)
	x.settleAll(token, x.due(everything(home, token, t0+2)))
	x.crash()
	x.wantDue(everything(home, token, t0+9), all[150:]...)
}
