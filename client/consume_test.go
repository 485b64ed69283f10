package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postdate/postdate/client"
)

// consumed is a server that has one batch for a consumer, which it brings late, after it has failed once. It refuses
// the receipt of the message "outdated".
type consumed struct {
	batch []string
	tries int
	asked time.Time // for the batch
	acked map[string]time.Duration
}

func (s *consumed) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	status, answer := 200, ""
	switch s.tries++; {
	case strings.HasSuffix(r.URL.Path, "/ack"):
		var ack struct{ Receipts []string }
		if err := json.Unmarshal(body, &ack); err != nil {
			return nil, err
		}
		var results []string
		for _, id := range ack.Receipts {
			s.acked[id] = time.Since(s.asked)
			if id == "outdated" {
				results = append(results, `{"receipt":"outdated","error":{"type":"receipt-outdated","detail":"too late"}}`)
				continue
			}
			results = append(results, fmt.Sprintf(`{"receipt":%q,"acked":true}`, id))
		}
		answer = `{"results":[` + strings.Join(results, ",") + `]}`
	case s.tries == 1:
		status, answer = 503, `{"type":"unavailable"}`
	default:
		s.asked = time.Now()
		time.Sleep(2 * time.Second) // of the bubble
		var messages []string
		for _, id := range s.batch {
			messages = append(messages, fmt.Sprintf(`{"scheduleId":%q,"receipt":%q,"deliveries":1}`, id, id))
		}
		answer = `{"messages":[` + strings.Join(messages, ",") + `]}`
	}
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
}

// consume handles one batch with a visibility of 20 s, and returns the server and the log.
func consume(t *testing.T, batch []string, handle func(ctx context.Context, id string) error) (*consumed, string) {
	s := &consumed{batch: batch, acked: map[string]time.Duration{}}
	var log bytes.Buffer
	c := open(t, client.Config{Servers: []string{"http://node"}, HTTP: &http.Client{Transport: s}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	err := c.Consume(ctx, "work", "w", client.InboxReceive{Visibility: 20 * time.Second}, func(ctx context.Context, m client.ReceivedMessage) error {
		err := handle(ctx, m.ScheduleID)
		if m.ScheduleID == batch[len(batch)-1] || ctx.Err() != nil {
			stop()
		}
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("consuming: %v", err)
	}
	return s, log.String()
}

// What is handled is acknowledged while it is surely hidden, whatever the rest of the batch takes.
func TestConsumeAcknowledgesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := consume(t, []string{"quick", "slow", "next", "endless", "left"}, func(ctx context.Context, id string) error {
			deadline, _ := ctx.Deadline()
			switch id {
			case "slow":
				time.Sleep(4 * time.Second)
			case "endless":
				<-ctx.Done()
				if time.Now() != deadline {
					t.Errorf("the context ended at %v, want %v", time.Now(), deadline)
				}
				return ctx.Err()
			case "left":
				t.Error("a message is begun although the time is over")
			}
			return nil
		})
		for id, after := range map[string]time.Duration{"quick": 6 * time.Second, "slow": 6 * time.Second, "next": 15 * time.Second} {
			if s.acked[id] != after {
				t.Errorf("%s was acknowledged %v after it was asked for, want %v", id, s.acked[id], after)
			}
		}
		if len(s.acked) != 3 || !strings.Contains(log, "scheduleId=endless") || !strings.Contains(log, "messages=1") {
			t.Errorf("acknowledged %v, and logged %s", s.acked, log)
		}
	})
}

// What comes again is in the log: what handle fails with, and what the server says of a receipt.
func TestConsumeSaysWhatComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := consume(t, []string{"bad", "outdated", "good"}, func(_ context.Context, id string) error {
			if id == "bad" {
				return errors.New("no such customer")
			}
			return nil
		})
		lines := strings.Split(strings.TrimSpace(log), "\n")
		if len(s.acked) != 2 || len(lines) != 2 || !strings.Contains(log, "no such customer") || !strings.Contains(log, "too late") {
			t.Errorf("acknowledged %v, and logged %s", s.acked, log)
		}
	})
}

// ailing answers with one status after the other, and 0 is no answer.
type ailing struct{ statuses []int }

func (s *ailing) RoundTrip(r *http.Request) (*http.Response, error) {
	status := s.statuses[0]
	if s.statuses = s.statuses[1:]; status == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(`{"messages":[]}`)), Request: r}, nil
}

// A worker outlives a node that is down for long, and ends when it is refused.
func TestConsumeGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, refusal := range []int{401, 403, 404} {
			s := &ailing{[]int{0, 500, 503, 200, 0, refusal, 200}}
			c := open(t, client.Config{Servers: []string{"http://node"}, HTTP: &http.Client{Transport: s}, RetryFor: -1, Log: slog.New(slog.DiscardHandler)})
			err := c.Consume(t.Context(), "work", "w", client.InboxReceive{}, func(context.Context, client.ReceivedMessage) error { return nil })
			var p *client.Problem
			if !errors.As(err, &p) || p.Status != refusal || len(s.statuses) != 1 {
				t.Errorf("consuming ended with %v, and %v were left", err, s.statuses)
			}
		}
	})
}
