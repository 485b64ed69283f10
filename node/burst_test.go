package node_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/account"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/poller"
)

// Many messages due at one instant are delivered once each, are never all in memory, and do not
// hold up messages for another channel.
func TestBurst(t *testing.T) {
	const burst, trickle, batch = 20_000, 200, 5_000
	_, api := start(t, config(t))
	ledger := nodetest.NewLedger()
	l := &burstLoad{t: t, client: api, ledger: ledger, batch: batch}
	begin := time.Now()
	l.schedule("trial", batch, func(int) time.Time { return begin })
	room := 4*(burst/batch)*time.Since(begin) + 3*time.Second // ample, unless the machine gets busier
	var crowd, others string                                  // the inboxes of the attempt that was fast enough
	for attempt := 1; ; attempt++ {
		crowd, others = fmt.Sprint("burst-", attempt), fmt.Sprint("trickle-", attempt)
		instant := time.Now().Add(room).Truncate(time.Millisecond)
		l.schedule(others, trickle, func(i int) time.Time { return instant.Add(time.Duration(i+1) * 5 * time.Millisecond) })
		l.schedule(crowd, burst, func(int) time.Time { return instant })
		if !time.Now().After(instant) {
			break
		}
		if time.Since(begin) > patience {
			t.Fatalf("attempt %d took over %v to schedule %d messages: there was no burst", attempt, room, burst)
		}
		room *= 2
	}
	var mu sync.Mutex
	first, last := map[string]time.Time{}, map[string]time.Time{}
	var ends []func()
	note := nodetest.Into(ledger)
	for _, inbox := range l.inboxes {
		ends = append(ends, follow(t, api, inbox, func(a nodetest.Arrival) {
			note(a)
			mu.Lock()
			defer mu.Unlock()
			if first[inbox].IsZero() {
				first[inbox] = a.DeliveredAt
			}
			last[inbox] = a.DeliveredAt
		}))
	}
	most, scrapes := watchHand(t, api, ledger)
	if err := api.AwaitNonePending(patient(t)); err != nil {
		t.Fatal(err)
	}
	for _, end := range ends {
		end()
	}
	nodetest.Settle(t, ledger)
	t.Logf("at most %v in hand in %d scrapes", most, scrapes)
	if limit := poller.DefaultConfig().HandMax; most > float64(limit) || most == 0 {
		t.Errorf("at most %v messages were in memory: it must be above 0 and at most %d", most, limit)
	}
	if !first[others].Before(last[crowd]) {
		t.Errorf("the trickle began at %s, when the burst was over at %s", nodetest.At(first[others]), nodetest.At(last[crowd]))
	}
}

// burstLoad schedules in batches, and records the results.
type burstLoad struct {
	t       *testing.T
	client  *nodetest.Client
	ledger  *account.Ledger
	batch   int
	inboxes []string // those used
}

// schedule schedules n messages to an inbox of their own; all must be accepted.
func (l *burstLoad) schedule(inbox string, n int, due func(i int) time.Time) {
	l.t.Helper()
	l.inboxes = append(l.inboxes, inbox)
	for from := 0; from < n; from += l.batch {
		ms := make([]client.Message, min(l.batch, n-from))
		for i := range ms {
			id, at := fmt.Sprint(inbox, "-", from+i), due(from+i).Truncate(time.Millisecond)
			l.ledger.Sent(id, "inbox:"+inbox, at)
			ms[i] = client.Message{ScheduleID: id, Channel: "inbox:" + inbox, ExecutionTime: at, Payload: fmt.Append(nil, from+i)}
		}
		results, err := l.client.ScheduleAll(l.t.Context(), ms)
		if err != nil {
			l.t.Fatal(err)
		}
		for _, r := range results {
			if r.Problem != nil {
				l.t.Fatalf("%+v", *r.Problem)
			}
			l.ledger.Scheduled(r.ScheduleID, account.Done, time.Now())
		}
	}
}

// watchHand keeps reading how many messages are in memory until all have arrived.
func watchHand(t *testing.T, api *nodetest.Client, ledger *account.Ledger) (most float64, scrapes int) {
	t.Helper()
	err := nodetest.Poll(patient(t), func() (bool, error) {
		now, err := api.Metric(t.Context(), "postdate_messages_in_hand")
		most = max(most, now)
		scrapes++
		return err == nil && ledger.Open() == 0, err
	})
	if err != nil {
		t.Fatalf("%d messages have not arrived: %v", ledger.Open(), err)
	}
	return most, scrapes
}
