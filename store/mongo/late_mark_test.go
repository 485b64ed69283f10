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
	"github.com/postdate/postdate/store/storetest"
)

// latecomer is a network that breaks the connection on which the first mark is sent, and
// delivers the mark later: TCP may do so with what is in a socket when its program closes it.
type latecomer struct {
	delivered chan struct{} // closed when the late mark was answered

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
	p := &latecomer{delivered: make(chan struct{})}
	u.Host, u.RawQuery = mongotest.NewRelay(t, u.Host, p.carry).Address(), "directConnection=true"
	return p, u.String()
}

func (p *latecomer) carry(client, server net.Conn) {
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
			return
		}
		if p.holds(b[:n], server, answers) {
			client.Close()
			<-p.delivered // the connection to the server stays until then
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

// before has f called right before the store's update with this number, counted from arm.
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
	close(p.delivered)
}

// ownedMessage is a store behind which all buckets are owned, and a message in it.
func ownedMessage(t *testing.T, uri string) (*mongo.Store, postdate.Message) {
	s := open(t, config(uri))
	t.Cleanup(func() { s.Close() })
	acquireAll(t, s)
	m := testMessage("a", s.Buckets(), 1000)
	if r := s.Insert(t.Context(), []postdate.Message{m})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	return s, m
}

// openLate opens a store whose first mark goes out twice. Right before the write that finishes
// by the second one, f is called, and then the first one arrives.
func openLate(t *testing.T, uri string, f func()) *mongo.Store {
	p, address := behindLatecomer(t, uri)
	c := config(address)
	monitor := onMessages(p.before(3, func() {
		f()
		p.deliver()
	}))
	s := openWatched(t, c, monitor)
	t.Cleanup(func() { s.Close() })
	p.arm()
	return s
}

// TestAMarkThatComesLate: a mark goes out twice, because the connection broke. The owner
// removes it and hands the message out. Then the first one arrives, and only then the cancel or
// replace finishes. It does not answer that it is done.
func TestAMarkThatComesLate(t *testing.T) {
	for _, how := range []string{"cancel", "replace", "cancel behind a mongos"} {
		t.Run(how, func(t *testing.T) {
			uri := mongotest.Fresh(t)
			if how == "cancel behind a mongos" {
				uri = routertest.Start(t, uri).URI()
			}
			owner, m := ownedMessage(t, uri)
			rec, err := owner.Get(t.Context(), m.Key)
			if err != nil {
				t.Fatal(err)
			}
			handed := 0
			s := openLate(t, uri, func() { handed = len(claimOf(t, owner, m.Bucket, 1, 1)) })
			if how == "replace" {
				later := m
				later.ExecutionTime = 9_000_000
				_, err = storetest.Replace(t.Context(), s, later, rec.Version)
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

// TestASettlementsMarkThatComesLate is the same for the settlement of a former owner: it does
// not put back a message that its successor has taken over, where a cancel would succeed.
func TestASettlementsMarkThatComesLate(t *testing.T) {
	uri := mongotest.Fresh(t)
	next, m := ownedMessage(t, uri)
	first := claimOf(t, next, m.Bucket, 1, 1)
	handed := 0
	s := openLate(t, uri, func() {
		if got, err := next.Acquire(t.Context(), []store.Acquisition{{Bucket: m.Bucket, SeenToken: 1, Owner: "o", Lease: "o"}}); err != nil || !got[0].OK {
			t.Error(got, err)
		}
		handed = len(claimOf(t, next, m.Bucket, 2, 2))
	})
	err := s.Settle(t.Context(), []store.Settlement{{
		Key: m.Key, ExecutionTime: m.ExecutionTime, Version: first[0].Version, Token: 1, How: store.SettleRetry, AttemptTime: 50_000, Attempts: 1, Reason: "refused",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if r := next.Cancel(t.Context(), []postdate.Key{m.Key}, 1)[0]; handed != 1 || postdate.KindOf(r.Err) != postdate.KindTooLate {
		t.Errorf("its successor has %d in hand, and a cancel answers %v", handed, r.Err)
	}
}
