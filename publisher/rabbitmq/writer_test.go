package rabbitmq

import (
	"bytes"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

// recorder keeps what each call writes.
type recorder struct {
	net.Conn
	mu     sync.Mutex
	writes [][]byte
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	r.writes = append(r.writes, bytes.Clone(b))
	r.mu.Unlock()
	return r.Conn.Write(b)
}

// The end of a message that goes alone goes out in one write with the confirm.select that asks
// whether it broke the channel, however large it is. If the confirm.select came after the
// broker's close of the channel, it would end the connection, and everything in flight on it.
func TestWhatGoesAloneTakesItsQuestionAlong(t *testing.T) {
	written := &recorder{}
	s := &session{}
	conn, err := amqp.DialConfig(rabbitmqtest.URL(t), amqp.Config{Dial: func(network, address string) (net.Conn, error) {
		conn, err := net.Dial(network, address)
		written.Conn = conn
		s.socket = &corked{Conn: written, timeout: time.Minute}
		return s.socket, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s.conn = conn
	l, p := newLane("", 10), &Publisher{config: Config{Window: 10}}
	it := &item{name: name{key: "nobody", id: "lonely"}, msg: amqp.Publishing{MessageId: "lonely", Body: make([]byte, 8*corkBytesMax)}, bell: make(chan struct{}, 1)}
	l.push(it, time.Now())
	p.mu.Lock()
	burst, alone := l.take(burstMax, time.Now())
	p.send(s, l, burst, alone)
	p.mu.Unlock()
	if !alone || !l.proven {
		t.Fatalf("alone %t, proven %t", alone, l.proven)
	}
	written.mu.Lock()
	defer written.mu.Unlock()
	question, end := []byte{0, 85, 0, 10}, make([]byte, 8) // confirm.select; of the message
	if !slices.ContainsFunc(written.writes, func(b []byte) bool {
		return bytes.Contains(b, question) && bytes.HasPrefix(b, end)
	}) {
		t.Error("no write has both the end of the message and the question")
	}
	if cap(s.socket.buffered) > 4*corkBytesMax {
		t.Errorf("%d bytes stay in memory", cap(s.socket.buffered))
	}
}
