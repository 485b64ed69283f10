package storetest

import (
	"context"
	"slices"
	"strconv"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

type inboxName struct{ tenant, name string }

// memInbox keeps messages in the order of their arrival. A cursor is the number
// of messages that ever came before it.
type memInbox struct {
	expired  int // messages that expired
	messages []store.InboxMessage
}

// AppendInbox implements store.Inbox.
func (m *Mem) AppendInbox(_ context.Context, messages []store.InboxMessage) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, message := range messages {
		m.append(message)
	}
	return nil
}

func (m *Mem) append(message store.InboxMessage) {
	name := inboxName{message.Tenant, message.Inbox}
	if m.inboxes[name] == nil {
		m.inboxes[name] = &memInbox{}
	}
	m.inboxes[name].messages = append(m.inboxes[name].messages, message)
}

// Deliver implements store.Deliverer.
func (m *Mem) Deliver(_ context.Context, deliveries []store.InboxDelivery) []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range deliveries {
		d := &deliveries[i]
		if old := m.Settles(&d.Settlement); old != nil {
			m.settle(old, &d.Settlement)
			m.append(d.Message)
		}
	}
	return make([]error, len(deliveries))
}

// ReadInbox implements store.Inbox.
func (m *Mem) ReadInbox(_ context.Context, tenant, name, after string,
	limit int) ([]store.InboxMessage, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	box := m.inboxes[inboxName{tenant, name}]
	if box == nil {
		box = &memInbox{}
	}
	from := 0
	if after != "" {
		var err error
		from, err = strconv.Atoi(after)
		if err != nil || from < 0 || from > box.expired+len(box.messages) || strconv.Itoa(from) != after {
			return nil, "", postdate.E(postdate.KindInvalid, "cursor %q is none", after)
		}
	}
	from = max(from, box.expired)
	to, bytes := from, 0
	for to < min(from+limit, box.expired+len(box.messages)) && bytes < store.PageBytesMax {
		bytes += box.messages[to-box.expired].Bytes()
		to++
	}
	page := slices.Clone(box.messages[from-box.expired : to-box.expired])
	for i := range page {
		page[i].Place = store.InboxPlace{Number: int64(from + i)}
	}
	return page, strconv.Itoa(to), nil
}

// ReadPlaces implements store.Inbox.
func (m *Mem) ReadPlaces(_ context.Context, tenant, name string,
	places []store.InboxPlace) (messages []store.InboxMessage, left []store.InboxPlace, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	box := m.inboxes[inboxName{tenant, name}]
	if box == nil {
		return nil, nil, nil
	}
	bytes := 0
	for looked, p := range places {
		if bytes >= store.PageBytesMax {
			return messages, places[looked:], nil
		}
		if i := int(p.Number) - box.expired; i >= 0 && i < len(box.messages) {
			message := box.messages[i]
			message.Place = p
			messages = append(messages, message)
			bytes += message.Bytes()
		}
	}
	return messages, nil, nil
}

func (m *Mem) expireInboxes(e *store.Expiry) int {
	expired := 0
	for name, box := range m.inboxes {
		if !slices.Contains(e.Buckets, bucket.Of(name.tenant, name.name, len(m.Records))) {
			continue
		}
		for expired < e.Limit && len(box.messages) > 0 && box.messages[0].DeliveredAt < e.DeliveredBefore {
			box.messages = box.messages[1:]
			box.expired++
			expired++
		}
	}
	return expired
}
