package receivers_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate/client/receivers"
)

// Headers are read from what the libraries have, whatever the types of its values.
func TestReadHeadersOfLibraries(t *testing.T) {
	const at = "2027-01-31T09:30:00.000Z"
	table, tableErr := receivers.ReadHeaders(amqp091.Table{"postdate-schedule-id": "a", "postdate-execution-time": at, "postdate-attempt": int32(2),
		"postdate-possible-duplicate": true}, "a")
	record, recordErr := receivers.ReadHeaders(map[string][]byte{"message-id": []byte("a"), "postdate-schedule-id": []byte("a"),
		"postdate-execution-time": []byte(at), "postdate-attempt": []byte("2"), "postdate-possible-duplicate": []byte("true")}, "")
	request, requestErr := receivers.ReadHeaders(http.Header{"Ce-Id": {"a"}, "Postdate-Schedule-Id": {"a"}, "Postdate-Execution-Time": {at},
		"Postdate-Attempt": {"2"}, "Postdate-Possible-Duplicate": {"true"}}, "")
	want := receivers.Delivery{MessageID: "a", ScheduleID: "a", ExecutionTime: time.Date(2027, 1, 31, 9, 30, 0, 0, time.UTC), Attempt: 2, PossibleDuplicate: true}
	if err := errors.Join(tableErr, recordErr, requestErr); err != nil || table != want || record != want || request != want {
		t.Errorf("RabbitMQ %+v, Kafka %+v, HTTP %+v, %v", table, record, request, err)
	}
}

// In an inbox a failure's headers stand without the others, which are fields there.
func TestReadFailedOfAnInbox(t *testing.T) {
	headers := map[string]string{"postdate-failed-id": "a", "postdate-failed-channel": "kafka:x", "postdate-failed-reason": "r",
		"postdate-failed-attempts": "5", "postdate-failed-time": "2027-01-31T09:30:00.000Z"}
	want := receivers.Failed{MessageID: "a", Channel: "kafka:x", Reason: "r", Attempts: 5, Time: time.Date(2027, 1, 31, 9, 30, 0, 0, time.UTC)}
	if f, err := receivers.ReadFailed(headers); err != nil || f == nil || *f != want {
		t.Errorf("%+v %v", f, err)
	}
	if f, err := receivers.ReadFailed(map[string]string{"mine": "1"}); f != nil || err != nil {
		t.Errorf("of another message: %+v %v", f, err)
	}
	headers["postdate-failed-attempts"] = "many"
	if _, err := receivers.ReadFailed(headers); err == nil || !strings.Contains(err.Error(), "postdate-failed-attempts") {
		t.Errorf("a number that is none: %v", err)
	}
}

// A secret that is none is refused at once, and not told.
func TestSecrets(t *testing.T) {
	good := "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	for _, secret := range []string{"", "whsec_", "whsec_c2hvcnQ=", "whsec_*", strings.TrimPrefix(good, "whsec_")} {
		_, err := receivers.NewWebhooks(good, secret)
		if err == nil || !strings.Contains(err.Error(), "secret 2 of 2") || secret != "" && secret != "whsec_" && strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", secret, err)
		}
	}
	none, err := receivers.NewWebhooks()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := none.Verify(http.Header{"Webhook-Id": {"a"}, "Webhook-Timestamp": {"1"}, "Webhook-Signature": {"v1,x"}}, nil); err == nil {
		t.Error("without a secret everything is signed")
	}
}

// A message that was handled is not handled again; one that failed is.
func TestDedupe(t *testing.T) {
	d, failed := receivers.NewDedupe(receivers.NewMemoryStore(2)), errors.New("failed")
	for n, step := range []struct {
		id      string
		fails   error
		handled bool
	}{
		{"a", failed, false}, {"a", nil, true}, {"a", nil, false}, {"b", nil, true}, {"c", nil, true}, {"b", nil, false},
		{"a", nil, true}, // forgotten: the store is full
	} {
		called := false
		handled, err := d.Once(t.Context(), step.id, func() error { called = true; return step.fails })
		if handled != step.handled || err != step.fails || called != (step.handled || step.fails != nil) {
			t.Errorf("step %d: handled %t, called %t, %v", n, handled, called, err)
		}
	}
}

// lost is a store that cannot be reached.
type lost struct{ has, add error }

func (s lost) Has(context.Context, string) (bool, error) { return false, s.has }
func (s lost) Add(context.Context, string) error         { return s.add }

// The store's errors come out, so that the message comes again.
func TestDedupeStoreFails(t *testing.T) {
	down := errors.New("down")
	for _, s := range []lost{{has: down}, {add: down}} {
		handled, err := receivers.NewDedupe(s).Once(t.Context(), "a", func() error { return nil })
		if handled != (s.has == nil) || !errors.Is(err, down) {
			t.Errorf("%+v: %t %v", s, handled, err)
		}
	}
}

// While a message is in hand, another call with it waits, and handles it only if the first failed.
func TestDedupeAtTheSameTime(t *testing.T) {
	for _, fails := range []error{nil, errors.New("failed")} {
		synctest.Test(t, func(t *testing.T) {
			d, end, calls := receivers.NewDedupe(nil), make(chan struct{}), 0
			go d.Once(t.Context(), "a", func() error { calls++; <-end; return fails })
			synctest.Wait()
			ended, stop := context.WithCancel(t.Context())
			stop()
			if _, err := d.Once(ended, "a", func() error { calls++; return nil }); !errors.Is(err, context.Canceled) {
				t.Errorf("a wait that ended: %v", err)
			}
			second := make(chan bool)
			go func() {
				handled, err := d.Once(t.Context(), "a", func() error { calls++; return nil })
				second <- handled && err == nil
			}()
			synctest.Wait()
			if calls != 1 {
				t.Errorf("%d calls at the same time", calls)
			}
			close(end)
			if handled := <-second; handled != (fails != nil) {
				t.Errorf("the first failed with %v, and it is %t that the second handled it", fails, handled)
			}
		})
	}
}
