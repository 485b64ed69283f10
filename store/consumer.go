package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/postdate/postdate"
)

// Consumers keeps where the named consumers of inboxes stand, for all nodes.
type Consumers interface {
	// Consumer reads a consumer. One that nobody set, or that expired, is the zero Consumer.
	Consumer(ctx context.Context, name ConsumerName) (Consumer, error)

	// SetConsumer makes a consumer durable in place of the one at version from (0: there is none), and says whether
	// it did. If not, somebody else was quicker, perhaps after this very call: the caller reads it again.
	SetConsumer(ctx context.Context, name ConsumerName, from uint64, to Consumer) (bool, error)
}

// ConsumerName names a consumer of an inbox. It belongs to the inbox's bucket.
type ConsumerName struct{ Tenant, Inbox, Consumer string }

// InboxReceive asks for what a consumer is to receive next, for a client that can wait.
type InboxReceive struct {
	ConsumerName
	Limit      int           // messages
	Wait       time.Duration // for the first message, if there is none yet
	Visibility time.Duration // how long nobody else receives them
}

// Consumer is how far a consumer has come. The zero Consumer has received nothing.
type Consumer struct {
	Version uint64        // another, random one after each change; 0: there is no such consumer
	UsedAt  postdate.Time // no earlier than any of its messages was delivered to the inbox
	Cursor  string        // after the last message that it received; "": before the first that is kept
	Reached int64         // the Number of the first place that it has not reached
	Open    []OpenMessage // what it received and has not acknowledged, in the order of places
}

// OpenMessage is a message that was received and is not acknowledged.
type OpenMessage struct {
	Place      InboxPlace
	Until      postdate.Time // nobody else receives it before
	Deliveries int           // how often it was received
	Receipt    uint64        // the version that the last of these made
}

// Receipt stands for one delivery of a message to a consumer.
type Receipt struct {
	Place InboxPlace
	ID    uint64 // as OpenMessage.Receipt
}

// Due lists the places of up to limit open messages that nobody acknowledged in time, those first whose time ended
// first.
func (c *Consumer) Due(now postdate.Time, limit int) []InboxPlace {
	var due []OpenMessage
	for _, o := range c.Open {
		if o.due(now) {
			due = append(due, o)
		}
	}
	slices.SortStableFunc(due, func(a, b OpenMessage) int { return cmp.Compare(a.Until, b.Until) })
	due = due[:min(len(due), limit)]
	places := make([]InboxPlace, len(due))
	for i, o := range due {
		places[i] = o.Place
	}
	return places
}

// clockSlack is how far the clocks of two nodes may be apart.
const clockSlack = time.Hour

// due says whether the message may be received again. One that is hidden for longer than anybody may ask for was
// received by a clock that was wrong.
func (o *OpenMessage) due(now postdate.Time) bool {
	return o.Until <= now || o.Until > now.Add(postdate.VisibilityMax+clockSlack)
}

// Room is how many new messages the consumer may receive.
func (c *Consumer) Room() int { return max(0, postdate.ConsumerOpenMax-len(c.Open)) }

// Reception is what was read for a consumer, which is to receive it.
type Reception struct {
	ID    uint64         // random: the version that it makes
	Limit int            // messages that may be received
	Now   postdate.Time  // when Due was asked
	Until postdate.Time  // until when the messages are hidden from others
	Due   []InboxPlace   // what Due listed, without places that were not looked at
	Kept  []InboxMessage // those of them that are kept, in any order
	New   []InboxMessage // what was read after Cursor: as many as Fresh said, or a page, or all there are
	Next  string         // the cursor after these
}

// Fresh is how many new messages to read for a reception that has the rest. While something new waits and there is
// room, what is due again gets half of the limit, or of 1 all or nothing by chance: else a few messages that nobody
// can handle would hold up all the others.
func (c *Consumer) Fresh(r *Reception) int {
	half := (r.Limit + int(r.ID>>1&1)) / 2
	expired := len(r.Due) - len(r.Kept) // which is no longer open
	return min(r.Limit-min(len(r.Kept), half), c.Room()+expired)
}

// Received is a message as a consumer receives it.
type Received struct {
	InboxMessage
	Receipt    Receipt
	Deliveries int
}

// Receive is the consumer after a reception, and what it received: again, then for the first time. What is no longer
// kept is not open any more. If nothing changes, the version stays.
func (c *Consumer) Receive(r *Reception) (to Consumer, received []Received) {
	if len(r.Due) == 0 && len(r.New) == 0 {
		return *c, nil
	}
	to = Consumer{Version: r.ID, UsedAt: max(c.UsedAt, r.Now), Cursor: c.Cursor, Reached: c.Reached,
		Open: slices.Clone(c.Open)}
	open := make(map[InboxPlace]*OpenMessage, len(to.Open))
	for i := range to.Open {
		open[to.Open[i].Place] = &to.Open[i]
	}
	kept := make(map[InboxPlace]*InboxMessage, len(r.Kept))
	for i := range r.Kept {
		kept[r.Kept[i].Place] = &r.Kept[i]
	}
	const expired = -1
	for _, place := range r.Due {
		o, m := open[place], kept[place]
		switch {
		case m == nil:
			o.Deliveries = expired
		case len(received) < r.Limit-len(r.New):
			o.Until, o.Deliveries, o.Receipt = r.Until, o.Deliveries+1, r.ID
			received = append(received, o.received(*m))
		}
	}
	to.Open = slices.DeleteFunc(to.Open, func(o OpenMessage) bool { return o.Deliveries == expired })
	for _, m := range r.New {
		o := OpenMessage{Place: m.Place, Until: r.Until, Deliveries: 1, Receipt: r.ID}
		to.Open = append(to.Open, o)
		received = append(received, o.received(m))
		to.Cursor, to.Reached, to.UsedAt = r.Next, m.Place.Number+1, max(to.UsedAt, m.DeliveredAt)
	}
	return to, received
}

func (o *OpenMessage) received(m InboxMessage) Received {
	m.PossibleDuplicate = m.PossibleDuplicate || o.Deliveries > 1
	return Received{m, Receipt{o.Place, o.Receipt}, o.Deliveries}
}

// Acknowledge is the consumer after these receipts, and one error per receipt. A receipt without an error says that
// the consumer does not receive the message again. If nothing changes, the version stays. id is random: the version
// that it makes.
func (c *Consumer) Acknowledge(id uint64, now postdate.Time, receipts []Receipt) (Consumer, []error) {
	open := make(map[InboxPlace]uint64, len(c.Open))
	for _, o := range c.Open {
		open[o.Place] = o.Receipt
	}
	gone := make(map[InboxPlace]bool, len(receipts))
	errs := make([]error, len(receipts))
	for i, r := range receipts {
		last, is := open[r.Place]
		switch {
		case is && last == r.ID:
			gone[r.Place] = true
		case is:
			errs[i] = postdate.E(postdate.KindTooLate, "the message was received again since: "+
				"acknowledge it with its new receipt, or receive with a longer visibility")
		case r.Place.Number >= c.Reached:
			errs[i] = postdate.E(postdate.KindTooLate, "the consumer was forgotten since: it received "+
				"and acknowledged nothing for the inbox's retention")
		}
	}
	if len(gone) == 0 {
		return *c, errs
	}
	to := *c
	to.Version, to.UsedAt = id, max(c.UsedAt, now)
	to.Open = slices.DeleteFunc(slices.Clone(c.Open), func(o OpenMessage) bool { return gone[o.Place] })
	return to, errs
}
