package membership

import (
	"encoding/binary"

	"github.com/postdate/postdate"
)

// Nudge says that a bucket has a message due at a time.
type Nudge struct {
	Bucket int
	At     postdate.Time
}

// The first byte of a packet is its kind.
const (
	packetNudges    = 1
	packetBroadcast = 2
	packetLeaving   = 3 // the sender's name follows
	packetQuestion  = 4
	packetAnswer    = 5

	// packetBytesMax leaves room in a datagram for the library's own bytes, a label
	// and encryption.
	packetBytesMax = 1024
)

// encodeNudges makes as many packets as needed. A nudge is two varints: the bucket,
// and the difference between its time and that of the nudge before it.
func encodeNudges(nudges []Nudge) (packets [][]byte) {
	var b []byte
	var last postdate.Time
	for _, n := range nudges {
		if b == nil {
			b, last = append(make([]byte, 0, packetBytesMax), packetNudges), 0
		}
		b = binary.AppendUvarint(b, uint64(n.Bucket))
		b = binary.AppendVarint(b, int64(n.At-last))
		last = n.At
		if len(b) > packetBytesMax-2*binary.MaxVarintLen64 {
			packets, b = append(packets, b), nil
		}
	}
	if b != nil {
		packets = append(packets, b)
	}
	return packets
}

// decodeNudges decodes a packet without its first byte. If anything in it is wrong, ok
// is false and the whole packet is dropped.
func decodeNudges(b []byte) (nudges []Nudge, ok bool) {
	var last postdate.Time
	for len(b) > 0 {
		bucket, n := binary.Uvarint(b)
		if n <= 0 || bucket >= postdate.BucketsMax {
			return nil, false
		}
		b = b[n:]
		step, n := binary.Varint(b)
		if n <= 0 || step < -int64(postdate.LatestTime) || step > int64(postdate.LatestTime) {
			return nil, false
		}
		b = b[n:]
		last += postdate.Time(step)
		if last < postdate.EarliestTime || last > postdate.LatestTime {
			return nil, false
		}
		nudges = append(nudges, Nudge{Bucket: int(bucket), At: last})
	}
	return nudges, true
}

// Nudge tells a member that messages are due, without a guarantee that it arrives. It
// never blocks: nudges that come faster than they can be sent are gathered, and only
// each bucket's earliest time is kept. An unknown member is an error of KindNotFound. A
// nudge out of range is dropped.
func (m *Membership) Nudge(to string, nudges ...Nudge) error {
	m.mu.Lock()
	if m.roster[to].state != StateAlive || to == m.config.Name {
		m.mu.Unlock()
		m.metrics.dropped.Add(float64(len(nudges)))
		return noMember(to)
	}
	waiting := m.outbox[to]
	if waiting == nil {
		waiting = map[int]postdate.Time{}
		m.outbox[to] = waiting
	}
	for _, n := range nudges {
		at, ok := waiting[n.Bucket]
		switch {
		case n.Bucket < 0 || n.Bucket >= postdate.BucketsMax || n.At < postdate.EarliestTime ||
			n.At > postdate.LatestTime:
			m.metrics.dropped.Inc()
		case !ok || n.At < at:
			waiting[n.Bucket] = n.At
		}
	}
	m.mu.Unlock()
	signal(m.toSend)
	return nil
}

// sendNudges sends the waiting nudges in a loop. While it sends, more are gathered.
func (m *Membership) sendNudges() {
	for {
		select {
		case <-m.stop:
			return
		case <-m.toSend:
		}
		m.mu.Lock()
		outbox := m.outbox
		m.outbox = map[string]map[int]postdate.Time{}
		m.mu.Unlock()
		for to, waiting := range outbox {
			nudges := make([]Nudge, 0, len(waiting))
			for bucket, at := range waiting {
				nudges = append(nudges, Nudge{bucket, at})
			}
			m.sendTo(to, nudges)
		}
	}
}

func (m *Membership) sendTo(name string, nudges []Nudge) {
	node, err := m.nodeNamed(name)
	for _, p := range encodeNudges(nudges) {
		if err == nil {
			err = m.list.SendBestEffort(node, p)
		}
	}
	if err != nil {
		m.metrics.dropped.Add(float64(len(nudges)))
		m.log.Debug("gossip: nudges are lost", "to", name, "error", err)
		return
	}
	m.metrics.sent.Add(float64(len(nudges)))
}

// Broadcast sends a small payload to every other member, without a guarantee that it
// arrives. An error means that the payload is too large and was not sent.
func (m *Membership) Broadcast(payload []byte) error {
	packet, err := wordPacket(payload)
	if err == nil {
		m.toAll(packet)
	}
	return err
}

// Tell is a Broadcast to one other member. An error means that the payload was certainly
// not sent: KindNotFound for an unknown member.
func (m *Membership) Tell(to string, payload []byte) error {
	packet, err := wordPacket(payload)
	if err != nil {
		return err
	}
	node, err := m.nodeNamed(to)
	if err != nil {
		return err
	}
	if err := m.list.SendBestEffort(node, packet); err != nil {
		return postdate.E(postdate.KindUnavailable, "gossip: a packet to %s is lost: %w", to, err)
	}
	return nil
}

func wordPacket(payload []byte) ([]byte, error) {
	if len(payload) >= packetBytesMax {
		return nil, postdate.E(postdate.KindTooLarge, "a broadcast has %d bytes: less than %d fit into a packet",
			len(payload), packetBytesMax)
	}
	return append([]byte{packetBroadcast}, payload...), nil
}

func (m *Membership) toAll(packet []byte) {
	for _, member := range m.Members() {
		node, err := m.nodeNamed(member.Name)
		if err != nil {
			continue // this node itself, or one that is gone by now
		}
		if err := m.list.SendBestEffort(node, packet); err != nil {
			m.log.Debug("gossip: a packet is lost", "to", member.Name, "error", err)
		}
	}
}

// receive handles a packet. The library reuses its bytes afterwards.
func (m *Membership) receive(b []byte) {
	if len(b) == 0 {
		m.metrics.garbage.Inc()
		return
	}
	switch kind, rest := b[0], b[1:]; kind {
	case packetNudges:
		nudges, ok := decodeNudges(rest)
		if !ok {
			m.metrics.garbage.Inc()
			return
		}
		m.metrics.received.Add(float64(len(nudges)))
		if m.config.OnNudges != nil && len(nudges) > 0 {
			m.config.OnNudges(nudges)
		}
	case packetBroadcast:
		if m.config.OnBroadcast != nil {
			m.config.OnBroadcast(append([]byte(nil), rest...))
		}
	case packetLeaving:
		m.leaves(string(rest))
	case packetQuestion, packetAnswer:
		q, ok := decodeEnvelope(rest)
		switch {
		case !ok:
			m.metrics.garbage.Inc()
		case kind == packetQuestion:
			m.receiveQuestion(q)
		default:
			m.receiveAnswer(q)
		}
	default:
		m.metrics.garbage.Inc() // perhaps from a later version
	}
}

// leaves records a node's announcement that it leaves. The library's own may have come
// first, by way of another node, and looked like a loss.
func (m *Membership) leaves(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch k := m.roster[name]; k.state {
	case StateAlive:
		m.leaving[name] = true
	case StateLost:
		k.state = StateLeft
		m.roster[name] = k
		signal(m.changed)
	}
}
