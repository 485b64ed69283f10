package mongo

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/mongo/routertest"
	"github.com/postdate/postdate/store/storetest"
)

// commitCutter stands between a store and its server. Once armed, it drops the answer to the
// next commit of a transaction, and lets nothing through afterwards.
type commitCutter struct {
	relay *mongotest.Relay
	armed atomic.Bool
}

func (p *commitCutter) carry(client, server net.Conn) {
	var committing atomic.Bool
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			n, err := client.Read(buffer)
			if p.armed.Load() && bytes.Contains(buffer[:n], []byte("commitTransaction")) {
				committing.Store(true)
			}
			if _, err := server.Write(buffer[:n]); err != nil {
				break
			}
			if err != nil {
				break
			}
		}
		server.Close()
	}()
	_, _ = io.Copy(writerFunc(func(b []byte) (int, error) {
		if committing.Load() { // the server has carried it out
			p.relay.Close()
			return 0, net.ErrClosed
		}
		return client.Write(b)
	}), server)
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// through opens a store through a commitCutter.
func through(t *testing.T, uri string) (*Store, *commitCutter) {
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	p := &commitCutter{}
	p.relay = mongotest.NewRelay(t, u.Host, p.carry)
	u.Host, u.RawQuery = p.relay.Address(), "directConnection=true"
	c := DefaultConfig(u.String())
	c.Buckets, c.Select, c.Timeout = 8, 500*time.Millisecond, 3*time.Second
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, p
}

// trigger triggers a series as it is.
func trigger(t *testing.T, s *Store, series postdate.Key) error {
	t.Helper()
	rec, err := s.Get(t.Context(), series)
	if err != nil {
		t.Fatal(err)
	}
	return s.Trigger(t.Context(), series, rec.Version, 500)
}

// TestLostAnswerToACommit loses the answer to a commit that the server has carried out, and
// then the server: nobody may conclude that the transaction was surely not done.
func TestLostAnswerToACommit(t *testing.T) {
	large := make([]byte, 5<<20)
	key := postdate.Key{Tenant: "default", ScheduleID: "a", Bucket: 1}
	message := postdate.Message{Key: key, Channel: "inbox:a", ExecutionTime: 1000}
	series := message
	series.ScheduleID, series.First, series.Recurrence = "b", 1000, &postdate.Recurrence{Every: time.Second}
	for name, write := range map[string]func(s *Store) error{
		"an inbox": func(s *Store) error {
			return s.AppendInbox(t.Context(), []store.InboxMessage{
				{Tenant: "default", Inbox: "a", ScheduleID: "1", DeliveredAt: 1, Payload: large},
				{Tenant: "default", Inbox: "a", ScheduleID: "2", DeliveredAt: 1, Payload: large},
			})
		},
		"an insert behind a mongos": func(s *Store) error {
			return s.Insert(t.Context(), []postdate.Message{message})[0].Err
		},
		"a replace behind a mongos": func(s *Store) error {
			r, err := s.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			_, err = storetest.Replace(t.Context(), s, message, r.Version)
			return err
		},
		"forgetting behind a mongos": func(s *Store) error {
			c := s.Cancel(t.Context(), []postdate.Key{series.Key}, 5)[0]
			if c.Err != nil {
				t.Fatal(c.Err)
			}
			return s.Forget(t.Context(), series.Key, c.State.Version)
		},
		"a trigger":                 func(s *Store) error { return trigger(t, s, series.Key) },
		"a trigger behind a mongos": func(s *Store) error { return trigger(t, s, series.Key) },
	} {
		t.Run(name, func(t *testing.T) {
			uri := mongotest.Fresh(t)
			if strings.HasSuffix(name, "behind a mongos") {
				uri = routertest.Start(t, uri).URI()
			}
			s, p := through(t, uri)
			if name == "a replace behind a mongos" {
				if r := s.Insert(t.Context(), []postdate.Message{message})[0]; r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			if r := s.Insert(t.Context(), []postdate.Message{series})[0]; r.Err != nil {
				t.Fatal(r.Err)
			}
			p.armed.Store(true)
			if err := write(s); postdate.KindOf(err) != postdate.KindUnknown {
				t.Errorf("the kind is %q, want %q: %v", postdate.KindOf(err), postdate.KindUnknown, err)
			}
		})
	}
}
