package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
)

// TestConsume: what a worker handles is acknowledged, and what it fails to handle comes again, marked.
func TestConsume(t *testing.T) {
	c, ctx := open(t, client.Config{Servers: []string{server(t)}}), patient(t)
	for _, id := range []string{"a", "b", "c"} {
		m := client.Message{ScheduleID: id, Channel: "inbox:work", ExecutionTime: time.Now(), Payload: []byte(`"` + id + `"`), ContentType: "application/json"}
		if _, err := c.Schedule(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	var seen []string
	working, stop := context.WithCancel(ctx)
	defer stop()
	err := c.Consume(working, "work", "worker", client.InboxReceive{Visibility: time.Second}, func(ctx context.Context, m client.ReceivedMessage) error {
		if _, limited := ctx.Deadline(); !limited || string(m.Payload) != `"`+m.ScheduleID+`"` || m.PossibleDuplicate != (m.Deliveries > 1) {
			t.Errorf("received %+v", m)
		}
		if m.ScheduleID == "b" && m.Deliveries == 1 {
			return errors.New("not yet")
		}
		seen = append(seen, fmt.Sprint(m.ScheduleID, m.Deliveries))
		if len(seen) == 3 {
			stop()
		}
		return nil
	})
	slices.Sort(seen)
	if want := []string{"a1", "b2", "c1"}; !slices.Equal(seen, want) || !errors.Is(err, context.Canceled) {
		t.Errorf("handled %v, then %v; want %v", seen, err, want)
	}
	// What was handled last is acknowledged although ctx ended: another worker receives nothing.
	left, err := c.Receive(ctx, "work", "worker", client.InboxReceive{Wait: 1500 * time.Millisecond})
	if err != nil || len(left) != 0 {
		t.Errorf("afterwards there came %+v, %v", left, err)
	}
	others, err := c.Receive(ctx, "work", "other", client.InboxReceive{Limit: 2})
	if err != nil || len(others) != 2 {
		t.Fatalf("another consumer received %+v, %v", others, err)
	}
	results, err := c.Ack(ctx, "work", "other", []string{others[0].Receipt, "x", others[0].Receipt})
	if err != nil || results[0].Err() != nil || results[1].Problem.Type != client.InvalidField || results[2].Err() != nil {
		t.Errorf("acknowledging: %+v, %v", results, err)
	}
	if results, err := c.Ack(ctx, "work", "other", nil); err != nil || len(results) != 0 {
		t.Errorf("acknowledging nothing: %+v, %v", results, err)
	}
}
