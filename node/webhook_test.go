package node_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
)

// slow is a receiver to which each request costs a while, so that it is slower than a node. It tells whose
// requests it answered.
type slow struct {
	begin, end chan struct{} // closed when it begins, and when it answers at once
	whose      chan string
}

func (s *slow) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	<-s.begin
	select {
	case <-time.After(100 * time.Millisecond):
	case <-s.end:
	}
	_, tenant, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Ce-Source"), "/postdate/"), "/")
	s.whose <- tenant
}

// Tenants that have more due to one receiver than it takes get their shares of it by weight.
func TestTenantsShareAReceiverByWeight(t *testing.T) {
	const each, before, counted = 2_000, 600, 1_400 // many: they come in turns of up to 64, and of more under load
	s := &slow{make(chan struct{}), make(chan struct{}), make(chan string, 4*each)}
	receiver := httptest.NewServer(s)
	defer receiver.Close()
	c := config(t)
	c.AdminKey, c.Webhook.Allow = adminKey, []string{"127.0.0.1"}
	n, _ := start(t, c)
	admin := clientWith(t, n, adminKey)
	weight := 3
	if _, err := admin.ChangeTenant(patient(t), "globex", client.TenantChange{Weight: &weight}); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"acme", "globex"} {
		var all []client.Message
		for i := range each {
			all = append(all, client.Message{ScheduleID: fmt.Sprint(i), Channel: receiver.URL, ExecutionTime: time.Now(), Payload: []byte("1")})
		}
		results, err := clientWith(t, n, keyFor(t, admin, tenant).Text).ScheduleAll(patient(t), all)
		if err != nil || results[each-1].Err() != nil {
			t.Fatal(err, results)
		}
	}
	close(s.begin)
	ofAcme := 0
	for i := range before + counted {
		if tenant := <-s.whose; tenant == "acme" && i >= before {
			ofAcme++
		}
	}
	close(s.end)
	if share := float64(ofAcme) / counted; share < 0.18 || share > 0.34 {
		t.Errorf("the tenant with a quarter of the weight had %.2f of what the receiver took", share)
	}
}

// A channel that is a URL is a webhook: the receiver gets the payload with the message's
// headers, signed, and what it refuses is sent again.
func TestWebhook(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	verifier, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string]int{}
	received := make(chan http.Header, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if err := verifier.Verify(body, r.Header); err != nil {
			t.Errorf("the signature does not verify: %v", err)
		}
		mu.Lock()
		seen[string(body)]++
		first := seen[string(body)] == 1
		mu.Unlock()
		if first && strings.Contains(string(body), "again") {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		received <- r.Header
	}))
	defer receiver.Close()
	c := config(t)
	c.Webhook.Allow, c.Webhook.Secrets = []string{"127.0.0.1"}, []string{secret}
	_, api := start(t, c)
	for _, payload := range []string{"once", "again"} {
		m := client.Message{ScheduleID: "hook-" + payload, Channel: receiver.URL + "/" + payload, Delay: 10 * time.Millisecond, Payload: fmt.Appendf(nil, "%q", payload), Headers: map[string]string{"X-Mine": "1"}, Retry: &client.Retry{MinBackoff: 10 * time.Millisecond}}
		if s, err := api.Schedule(t.Context(), m); err != nil || !s.Created {
			t.Fatal(s, err)
		}
	}
	attempts := map[string]string{"hook-once": "1", "hook-again": "2"}
	for range attempts {
		select {
		case h := <-received:
			id := h.Get("Ce-Id")
			if h.Get("Postdate-Attempt") != attempts[id] || h.Get("Postdate-Schedule-Id") != id || h.Get("X-Mine") != "1" || h.Get("Content-Type") != "application/json" {
				t.Errorf("it received %v", h)
			}
			if source := h.Get("Ce-Source"); !regexp.MustCompile("^/postdate/pebble-[0-9a-f]{8}/default$").MatchString(source) {
				t.Errorf("the source is %q, without the store's name", source)
			}
		case <-time.After(patience):
			t.Fatal("waited in vain")
		}
	}
	if err := api.AwaitNonePending(patient(t)); err != nil {
		t.Fatal(err)
	}
}

// An address that the operator has not allowed is not connected to.
func TestWebhookToAPrivateAddress(t *testing.T) {
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was reached") }))
	defer receiver.Close()
	_, api := start(t, config(t))
	_, err := api.Schedule(t.Context(), client.Message{ScheduleID: "inside", Channel: receiver.URL, Delay: time.Millisecond, Payload: []byte("1")})
	var p *client.Problem
	if errors.As(err, &p) && p.Status == http.StatusBadRequest {
		t.Log(err) // refused immediately, because the address is in the URL
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	err = nodetest.Poll(patient(t), func() (bool, error) {
		m, err := api.Get(t.Context(), "inside")
		return m.LastError != "", err
	})
	m, _ := api.Get(t.Context(), "inside")
	if err != nil || m.Status == "DELIVERED" {
		t.Errorf("%+v, %v", m, err)
	}
	t.Log(m.LastError)
}
