package webhook

import (
	"slices"
	"sync"
)

// host sends the messages to one host, so many at a time, in the order in which they came: it does not
// matter in what batches they lie. It exists only while there are any.
type host struct {
	users int // calls under way; the publisher's lock guards it

	mu      sync.Mutex // guards what follows
	waiting []message
	sending int
}

// message is the i-th of a call's batch.
type message struct {
	of *call
	i  int
}

// add puts a call's messages behind those that wait.
func (h *host) add(c *call, atOnce int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range c.batch {
		h.waiting = append(h.waiting, message{c, i})
	}
	for range min(len(h.waiting), atOnce-h.sending) {
		h.sending++
		go h.send()
	}
}

// send sends one message after the other while any waits.
func (h *host) send() {
	for {
		h.mu.Lock()
		if len(h.waiting) == 0 {
			h.sending--
			h.mu.Unlock()
			return
		}
		m := h.waiting[0]
		h.waiting = h.waiting[1:]
		h.mu.Unlock()
		m.of.end(m.i, m.of.deliver(&m.of.batch[m.i]))
	}
}

// withdraw takes a call's messages out of those that wait.
func (h *host) withdraw(c *call) (all []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = slices.DeleteFunc(h.waiting, func(m message) bool {
		if m.of == c {
			all = append(all, m.i)
		}
		return m.of == c
	})
	return all
}
