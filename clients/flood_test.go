package clients

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/postdate/postdate/client"
)

// flood is many messages that are scheduled and consumed while the node dies.
type flood struct {
	*player
	client          *client.Client
	inbox, consumer string
	receive         client.InboxReceive
	count           int
	cancel          context.CancelCauseFunc

	mu                        sync.Mutex
	failed, handled, unmarked map[string]bool
	scheduled                 int
}

var errAllHandled = errors.New("all are handled")

// flood checks that none of many messages is lost, and none comes twice without its mark.
func (p *player) flood(whole context.Context, c *client.Client, with map[string]any) error {
	ctx, cancel := context.WithCancelCause(whole)
	defer cancel(nil)
	f := &flood{player: p, client: c, inbox: text(with, "inbox"), consumer: text(with, "consumer"),
		receive: receiveOf(with), count: number(with, "count"), cancel: cancel,
		failed: map[string]bool{}, handled: map[string]bool{}, unmarked: map[string]bool{}}
	var all sync.WaitGroup
	for range number(with, "workers") {
		all.Go(func() { cancel(c.Consume(ctx, f.inbox, f.consumer, f.receive, f.handle)) })
	}
	next := make(chan int)
	for range number(with, "callers") {
		all.Go(func() {
			for n := range next {
				if err := f.schedule(ctx, n); err != nil && ctx.Err() == nil {
					cancel(err)
				}
			}
		})
	}
	for n := range f.count {
		next <- n
	}
	close(next)
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, errAllHandled) {
		return fmt.Errorf("%d of %d were handled: %w", len(f.handled), f.count, err)
	}
	rest := f.receive
	rest.Wait = rest.Visibility
	more, err := c.Receive(whole, f.inbox, f.consumer, rest)
	if len(more) > 0 {
		return fmt.Errorf("%s comes again once all are handled", more[0].ScheduleID)
	}
	return err
}

func (f *flood) schedule(ctx context.Context, n int) error {
	id := fmt.Sprintf("flood-%d", n)
	answer, err := f.client.Schedule(ctx, client.Message{ScheduleID: id, Channel: "inbox:" + f.inbox,
		Delay: time.Millisecond, Payload: fmt.Append(nil, n)})
	if err == nil && answer.ScheduleID != id {
		err = fmt.Errorf("%s is answered with %s", id, answer.ScheduleID)
	}
	f.mu.Lock()
	f.scheduled++
	quarter := f.scheduled == f.count/4
	f.mu.Unlock()
	if err != nil || !quarter {
		return err
	}
	some := f.receive
	some.Wait = 5 * time.Second
	lost, err := f.client.Receive(ctx, f.inbox, f.consumer, some)
	f.mu.Lock()
	for _, m := range lost {
		f.received(m)
	}
	f.mu.Unlock()
	return errors.Join(err, f.control("/kill", nil), f.control("/start?after=200ms", nil))
}

// received checks a message.
func (f *flood) received(m client.ReceivedMessage) {
	if m.ScheduleID != "flood-"+string(m.Payload) {
		f.cancel(fmt.Errorf("%s has the payload %s", m.ScheduleID, m.Payload))
	}
	if m.PossibleDuplicate {
		return
	}
	if f.unmarked[m.ScheduleID] {
		f.cancel(fmt.Errorf("%s came twice without a mark", m.ScheduleID))
	}
	f.unmarked[m.ScheduleID] = true
}

func (f *flood) handle(_ context.Context, m client.ReceivedMessage) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.received(m)
	if strings.HasSuffix(m.ScheduleID, "00") && !f.failed[m.ScheduleID] {
		f.failed[m.ScheduleID] = true
		return errors.New("the flood lets it fail")
	}
	if f.handled[m.ScheduleID] = true; len(f.handled) == f.count {
		f.cancel(errAllHandled)
	}
	return nil
}
