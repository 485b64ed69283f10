package mongo_test

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/mongo/routertest"
)

// latecomer is a network that breaks the connection on which the first mark is sent, and brings
// it to the server later: TCP may do so with what lies in a socket when its program closes it.
type latecomer struct {
	server string

	mu    sync.Mutex
	armed bool
	late  func() // brings it, and returns when it was answered
}

// behindLatecomer is the address of a store behind one, and of one server.
func behindLatecomer(t *testing.T, uri string) (*latecomer, string) {
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := &latecomer{server: u.Host}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	u.Host, u.RawQuery = l.Addr().String(), "directConnection=true"
	return p, u.String()
}

func (p *latecomer) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	answers := make(chan []byte, 1)
	go func() {
		defer close(answers)
		b := make([]byte, 64<<10)
		for {
			n, err := server.Read(b)
			if err != nil {
				return
			}
			answers <- bytes.Clone(b[:n])
		}
	}()
	b := make([]byte, 1<<20)
	for {
		n, err := client.Read(b)
		if err != nil {
			server.Close()
			return
		}
		if p.holds(b[:n], server, answers) {
			return
		}
		if _, err := server.Write(b[:n]); err != nil {
			return
		}
		answer, ok := <-answers
		if !ok {
			return
		}
		if _, err := client.Write(answer); err != nil {
			return
		}
	}
}

// holds keeps the first mark.
func (p *latecomer) holds(request []byte, server net.Conn, answers <-chan []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.armed || !bytes.Contains(request, []byte("update\x00")) || !bytes.Contains(request, []byte("mark\x00")) {
		return false
	}
	held := bytes.Clone(request)
	p.armed, p.late = false, func() {
		if _, err := server.Write(held); err == nil {
			<-answers
		}
	}
	return true
}

// before has f called right before the store's update with this number, from when it is armed.
func (p *latecomer) before(number int64, f func()) func(command bson.Raw) {
	var updates atomic.Int64
	return func(command bson.Raw) {
		if name, _ := command.IndexErr(0); name.Key() == "update" && updates.Add(1) == number {
			f()
		}
	}
}

// arm has it hold the next mark, and deliver brings that to the server.
func (p *latecomer) arm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = true
}

func (p *latecomer) deliver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late()
}

// TestAMarkThatComesLate: a mark goes out, and once more, because the connection broke; the
// owner removes it and hands the message out; then the first one arrives, and only then the
// cancel or replace finishes. It does not answer that it is done.
func TestAMarkThatComesLate(t *testing.T) {
	for _, how := range []string{"cancel", "replace", "cancel behind a mongos"} {
		t.Run(how, func(t *testing.T) {
			uri := mongotest.Fresh(t)
			if how == "cancel behind a mongos" {
				uri = routertest.Start(t, uri).URI()
			}
			owner := open(t, config(uri))
			defer owner.Close()
			acquireAll(t, owner)
			m := testMessage("a", owner.Buckets(), 1000)
			if r := owner.Insert(t.Context(), []postdate.Message{m})[0]; r.Err != nil {
				t.Fatal(r.Err)
			}
			rec, err := owner.Get(t.Context(), m.Key)
			if err != nil {
				t.Fatal(err)
			}
			p, address := behindLatecomer(t, uri)
			handed := 0
			c := config(address)
			c.Monitor = onMessages(p.before(3, func() { // the mark, the mark once more, and now what finishes
				handed = len(claimOf(t, owner, m.Bucket, 1, 1))
				p.deliver()
			}))
			s, err := mongo.Open(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			p.arm()
			if how == "replace" {
				later := m
				later.ExecutionTime = 9_000_000
				_, err = s.Replace(t.Context(), later, rec.Version)
			} else {
				err = s.Cancel(t.Context(), []postdate.Key{m.Key}, 1)[0].Err
			}
			if handed != 1 || postdate.KindOf(err) != postdate.KindTooLate {
				t.Errorf("%d messages were handed out, and the %s answers %v", handed, how, err)
			}
		})
	}
}

func claimOf(t *testing.T, s *mongo.Store, b int, token, number uint64) []postdate.Record {
	r := s.Claim(t.Context(), []store.Claim{{
		Bucket: b, Claim: bucket.Claim{Token: token, Number: number, To: bucket.UpTo(2000)}, Scan: store.Scan{Limit: 10, BytesMax: 1 << 20},
	}})[0]
	if r.Err != nil {
		t.Error(r.Err)
	}
	return r.Due
}

// TestASettlementsMarkThatComesLate is the same with the settlement of a former owner: it does
// not put back what its successor has taken over, so that a cancel would take it back.
func TestASettlementsMarkThatComesLate(t *testing.T) {
	uri := mongotest.Fresh(t)
	next := open(t, config(uri))
	defer next.Close()
	acquireAll(t, next)
	m := testMessage("a", next.Buckets(), 1000)
	if r := next.Insert(t.Context(), []postdate.Message{m})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	first := claimOf(t, next, m.Bucket, 1, 1)
	p, address := behindLatecomer(t, uri)
	handed := 0
	c := config(address)
	c.Monitor = onMessages(p.before(3, func() {
		if got, err := next.Acquire(t.Context(), []store.Acquisition{{Bucket: m.Bucket, SeenToken: 1, Owner: "o", Lease: "o"}}); err != nil || !got[0].OK {
			t.Error(got, err)
		}
		handed = len(claimOf(t, next, m.Bucket, 2, 2))
		p.deliver()
	}))
	s, err := mongo.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p.arm()
	err = s.Settle(t.Context(), []store.Settlement{{
		Key: m.Key, ExecutionTime: m.ExecutionTime, Version: first[0].Version, Token: 1, How: store.SettleRetry, AttemptTime: 50_000, Attempts: 1, Reason: "refused",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if r := next.Cancel(t.Context(), []postdate.Key{m.Key}, 1)[0]; handed != 1 || postdate.KindOf(r.Err) != postdate.KindTooLate {
		t.Errorf("its successor has %d in hand, and a cancel answers %v", handed, r.Err)
	}
}
