package membership

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// askAgainAfter is when a question is sent once more to those that have not answered: its packet may be lost.
	askAgainAfter = 100 * time.Millisecond

	// answerers is how many answers are sent at the same time, and questionsMax how many questions wait for that. A
	// question beyond is dropped.
	answerers    = 4
	questionsMax = 64
)

// question is a question or the answer to one: both have the same form.
type question struct {
	number uint64 // the answer has that of its question
	from   string
	text   []byte
}

// asking is a question that was sent, until all have answered.
type asking struct {
	answers map[string][]byte // by name; nil: not here yet
	left    int
	done    chan struct{}
}

// Ask puts a question to all other members, and returns the answers that are here when ctx ends or all have
// answered, by name, and who has not answered. A question fits into a packet; an answer may be large.
func (m *Membership) Ask(ctx context.Context, text []byte) (answers map[string][]byte, missing []string) {
	number, a := rand.Uint64(), &asking{answers: map[string][]byte{}, done: make(chan struct{})}
	for _, member := range m.Members() {
		if member.Name != m.config.Name {
			a.answers[member.Name] = nil
		}
	}
	if a.left = len(a.answers); a.left == 0 {
		return nil, nil
	}
	m.mu.Lock()
	m.asked[number] = a
	m.mu.Unlock()
	packet := question{number, m.config.Name, text}.packet(packetQuestion)
	m.toAll(packet)
	again := time.NewTimer(askAgainAfter)
	defer again.Stop()
	for waits := true; waits; {
		select {
		case <-again.C:
			for _, name := range m.unanswered(a) {
				if node, err := m.nodeNamed(name); err == nil {
					_ = m.list.SendBestEffort(node, packet) // who gets no question is missing
				}
			}
		case <-a.done:
			waits = false
		case <-ctx.Done():
			waits = false
		}
	}
	m.mu.Lock()
	delete(m.asked, number) // nothing writes to it from now on
	m.mu.Unlock()
	missing = m.unanswered(a)
	for _, name := range missing {
		delete(a.answers, name)
	}
	return a.answers, missing
}

func (m *Membership) unanswered(a *asking) (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, answer := range a.answers {
		if answer == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// questioned takes in a question. It does not block.
func (m *Membership) questioned(q question) {
	if m.config.OnQuestion == nil {
		return
	}
	select {
	case m.questions <- q:
	default:
	}
}

// answerQuestions answers in a loop. A stream takes the answers, because they may be larger than a packet.
func (m *Membership) answerQuestions() {
	for {
		select {
		case <-m.stop:
			return
		case q := <-m.questions:
			node, err := m.nodeNamed(q.from)
			if err == nil {
				answer := question{q.number, m.config.Name, m.config.OnQuestion(q.text)}
				err = m.list.SendReliable(node, answer.packet(packetAnswer))
			}
			if err != nil {
				m.log.Debug("gossip: an answer is lost", "to", q.from, "error", err)
			}
		}
	}
}

// answered takes in an answer. What nobody asked for, or has already, is dropped.
func (m *Membership) answered(q question) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.asked[q.number]
	if a == nil {
		return
	}
	if answer, asked := a.answers[q.from]; !asked || answer != nil {
		return
	}
	a.answers[q.from] = q.text
	if a.left--; a.left == 0 {
		close(a.done)
	}
}

// packet encodes a question or an answer: the kind, the number, the sender's name after its length, and the text.
func (q question) packet(kind byte) []byte {
	b := binary.BigEndian.AppendUint64([]byte{kind}, q.number)
	b = append(binary.AppendUvarint(b, uint64(len(q.from))), q.from...)
	return append(b, q.text...)
}

// decodeQuestion decodes a packet without its first byte.
func decodeQuestion(b []byte) (q question, ok bool) {
	if len(b) < 8 {
		return q, false
	}
	q.number, b = binary.BigEndian.Uint64(b), b[8:]
	length, n := binary.Uvarint(b)
	if n <= 0 || length > nameBytesMax || int(length) > len(b)-n {
		return q, false
	}
	b = b[n:]
	q.from = string(b[:length])
	q.text = append([]byte{}, b[length:]...) // never nil, and the library uses b again
	return q, true
}
