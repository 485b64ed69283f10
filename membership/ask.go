package membership

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// askAgainAfter is when a question is sent once more to those that have not answered: its packet may be lost.
	askAgainAfter = 100 * time.Millisecond

	// silentWait is how long Ask waits for members that were silent before: those that are hung or cut off hold up no
	// question more than once.
	silentWait = 50 * time.Millisecond

	// questionsMax is how many questions of one member wait. One beyond is dropped.
	questionsMax = 64

	// questionLasts is for how long a question waits. Whoever asked has given up by then.
	questionLasts = time.Second
)

// envelope has a question or the answer to one: both have the same form.
type envelope struct {
	id   uint64 // the answer has that of its question
	from string
	text []byte
}

// openQuestion is a question that was sent, until all have answered.
type openQuestion struct {
	answers map[string][]byte // by name; nil: not here yet
	came    chan struct{}     // signals an answer
}

// Ask puts a question to all other members. It waits until all have answered or ctx ends, and returns the answers by
// name, and who has not answered, sorted. Give ctx a deadline: a member may never answer. One that was silent until a
// deadline is waited for only 50 ms from then on, until an answer of it comes, however late. A question must fit into a
// packet; an answer may be large.
func (m *Membership) Ask(ctx context.Context, text []byte) (answers map[string][]byte, missing []string) {
	id, a := rand.Uint64(), &openQuestion{answers: map[string][]byte{}, came: make(chan struct{}, 1)}
	for _, member := range m.Members() {
		if member.Name != m.config.Name {
			a.answers[member.Name] = nil
		}
	}
	if len(a.answers) == 0 {
		return nil, nil
	}
	m.mu.Lock()
	m.asked[id] = a
	m.mu.Unlock()
	packet := envelope{id, m.config.Name, text}.packet(packetQuestion)
	m.toAll(packet)
	again, grace := time.NewTimer(askAgainAfter), time.NewTimer(silentWait)
	defer again.Stop()
	defer grace.Stop()
	for patient := true; ctx.Err() == nil && m.waitsFor(a, patient); {
		select {
		case <-grace.C:
			patient = false
		case <-again.C:
			for _, name := range m.unanswered(a) {
				if node, err := m.nodeNamed(name); err == nil {
					_ = m.list.SendBestEffort(node, packet) // who gets no question is missing
				}
			}
		case <-a.came:
		case <-ctx.Done():
		}
	}
	missing = m.unanswered(a)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.asked, id) // nothing writes to it from now on
	maps.DeleteFunc(m.silent, func(name string, _ bool) bool { _, asked := a.answers[name]; return !asked })
	for _, name := range missing {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			m.silent[name] = true
		}
		delete(a.answers, name)
	}
	return a.answers, missing
}

// waitsFor says whether there is still somebody to wait for: whoever has not answered, but the silent only with
// patience.
func (m *Membership) waitsFor(a *openQuestion, patient bool) bool {
	missing := m.unanswered(a)
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(missing, func(name string) bool { return patient || !m.silent[name] })
}

func (m *Membership) unanswered(a *openQuestion) (names []string) {
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

// waiting is a question that arrived and is not answered.
type waiting struct {
	envelope
	since time.Time
}

// receiveQuestion takes in a question of another member. It does not block.
func (m *Membership) receiveQuestion(q envelope) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, answers := m.waiting[q.from]
	if m.config.OnQuestion == nil || m.roster[q.from].state != StateAlive || q.from == m.config.Name ||
		len(before) == questionsMax {
		return
	}
	m.waiting[q.from] = append(before, waiting{q, time.Now()})
	if !answers {
		go m.answerTo(q.from)
	}
}

// answerTo answers a member's questions until none waits. A member that is hard to reach delays no other's answers,
// and no stop: nobody waits for this to return.
func (m *Membership) answerTo(asker string) {
	for q, some := m.nextQuestion(asker); some; q, some = m.nextQuestion(asker) {
		if time.Since(q.since) > questionLasts {
			continue
		}
		node, err := m.nodeNamed(asker)
		if err == nil { // a stream takes the answer, because it may be larger than a packet
			answer := envelope{q.id, m.config.Name, m.config.OnQuestion(q.text)}
			err = m.list.SendReliable(node, answer.packet(packetAnswer))
		}
		if err != nil {
			m.log.Debug("gossip: an answer is lost", "to", asker, "error", err)
		}
	}
}

// nextQuestion takes the next question of a member; some is false if there is none, or this node is shut down.
func (m *Membership) nextQuestion(asker string) (q waiting, some bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.waiting[asker]
	select {
	case <-m.stop:
		all = nil
	default:
	}
	if len(all) == 0 {
		delete(m.waiting, asker)
		return q, false
	}
	m.waiting[asker] = all[1:]
	return all[0], true
}

// receiveAnswer takes in an answer. What nobody asked for, or has already, is dropped.
func (m *Membership) receiveAnswer(q envelope) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.silent, q.from) // also if it comes too late
	a := m.asked[q.id]
	if a == nil {
		return
	}
	if answer, asked := a.answers[q.from]; !asked || answer != nil {
		return
	}
	a.answers[q.from] = q.text
	signal(a.came)
}

// packet encodes a question or an answer: the kind, the id, the sender's name after its length, and the text.
func (q envelope) packet(kind byte) []byte {
	b := binary.BigEndian.AppendUint64([]byte{kind}, q.id)
	b = append(binary.AppendUvarint(b, uint64(len(q.from))), q.from...)
	return append(b, q.text...)
}

// decodeEnvelope decodes a packet without its first byte.
func decodeEnvelope(b []byte) (q envelope, ok bool) {
	if len(b) < 8 {
		return q, false
	}
	q.id, b = binary.BigEndian.Uint64(b), b[8:]
	length, n := binary.Uvarint(b)
	if n <= 0 || length > nameBytesMax || int(length) > len(b)-n {
		return q, false
	}
	b = b[n:]
	q.from = string(b[:length])
	q.text = append([]byte{}, b[length:]...) // never nil, and the library uses b again
	return q, true
}
