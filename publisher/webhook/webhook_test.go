package webhook_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/proctest"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/publisher/publishertest"
	"github.com/postdate/postdate/publisher/webhook"
)

const timeout = 20 * time.Second

// loopback is the tests' allow list: their own receivers.
var loopback = []string{"127.0.0.1"}

func newPublisher(t *testing.T, c webhook.Config) *webhook.Publisher {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = timeout
	}
	p, err := webhook.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func batchOf(n int) []postdate.Delivery {
	batch := make([]postdate.Delivery, n)
	for i := range batch {
		batch[i] = postdate.Delivery{Attempt: 1, Message: &postdate.Message{
			Key:           postdate.Key{Tenant: postdate.DefaultTenant, ScheduleID: fmt.Sprint("m-", i)},
			ExecutionTime: 1_800_000_000_123, Payload: []byte(`{"n":1}`), ContentType: "application/json",
		}}
	}
	return batch
}

// receiver keeps the requests to each path.
type receiver struct {
	mu   sync.Mutex
	came map[string][]publishertest.Consumed
	more *sync.Cond
}

func newReceiver() *receiver {
	r := &receiver{came: map[string][]publishertest.Consumed{}}
	r.more = sync.NewCond(&r.mu)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if strings.HasPrefix(req.URL.Path, "/refuse") {
		http.Error(w, "not here", http.StatusForbidden)
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	c := publishertest.Consumed{MessageID: req.Header.Get("Ce-Id"), ContentType: req.Header.Get("Content-Type"), Payload: body, Headers: map[string]string{}}
	for name, values := range req.Header {
		switch {
		case strings.HasPrefix(name, "Ce-"), slices.Contains([]string{"Content-Type", "Content-Length", "User-Agent", "Accept-Encoding"}, name):
		default:
			c.Headers[strings.ToLower(name)] = strings.Join(values, "|")
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.came[req.URL.Path] = append(r.came[req.URL.Path], c)
	r.more.Broadcast()
}

func (r *receiver) take(t *testing.T, path string, n int) []publishertest.Consumed {
	late := time.AfterFunc(time.Minute, r.more.Broadcast)
	defer late.Stop()
	start := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.came[path]) < n {
		if time.Since(start) >= time.Minute {
			t.Fatalf("%d requests of %d came", len(r.came[path]), n)
		}
		r.more.Wait()
	}
	return slices.Clone(r.came[path])
}

func TestConformance(t *testing.T) {
	r := newReceiver()
	address := proctest.Closed(t)
	serve := func() *httptest.Server {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(r)
		server.Listener.Close()
		server.Listener = l
		server.Start()
		return server
	}
	server := serve()
	t.Cleanup(func() { server.Close() })
	var paths atomic.Int64
	publishertest.Run(t, publishertest.Harness{
		Timeout: 2 * timeout,
		New:     func(t *testing.T) publisher.Publisher { return newPublisher(t, webhook.Config{Allow: loopback}) },
		Channel: func(*testing.T) postdate.Channel {
			return postdate.Channel(fmt.Sprintf("http://%s/ok/%d", address, paths.Add(1)))
		},
		Consume: func(t *testing.T, channel postdate.Channel, n int) []publishertest.Consumed {
			return r.take(t, strings.TrimPrefix(string(channel), "http://"+address), n)
		},
		Bad: func(m *postdate.Message) { m.Headers = []postdate.Header{{Name: "no token", Value: "x"}} },
		Refusing: func(*testing.T) postdate.Channel {
			return postdate.Channel("http://" + address + "/refuse")
		},
		Break: func(t *testing.T) func() {
			server.CloseClientConnections()
			server.Close()
			return func() { server = serve() }
		},
		BadChannel: "https://user:password@example.com/",
	})
}

// hijack answers with what f writes to the connection.
func hijack(f func(net.Conn)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			f(c)
			c.Close()
		}
	}
}

func write(text string) http.HandlerFunc {
	return hijack(func(c net.Conn) { _, _ = io.WriteString(c, text) })
}

func status(code int, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "in\tthe receiver's\nwords")
	}
}

// Each answer, and each way to fail to answer, has its outcome.
func TestEachAnswerHasItsOutcome(t *testing.T) {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		want    publisher.Result
	}{
		{"200", status(200), publisher.Result{Outcome: publisher.Confirmed}},
		{"204", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, publisher.Result{Outcome: publisher.Confirmed}},
		{"400", status(400), publisher.Result{Outcome: publisher.Refused, Reason: "400 Bad Request: in the receiver's words"}},
		{"410", status(410), publisher.Result{Outcome: publisher.Refused, Permanent: true, Reason: "410 Gone"}},
		{"429", status(429, "Retry-After", "7"), publisher.Result{Outcome: publisher.Refused, RetryAfter: 7 * time.Second, Reason: "429"}},
		{"503", status(503, "Retry-After", "99999999999"), publisher.Result{Outcome: publisher.Refused, RetryAfter: time.Hour, Reason: "503"}},
		{"503 until a date", status(503, "Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"), publisher.Result{Outcome: publisher.Refused, RetryAfter: time.Hour, Reason: "503"}},
		{"503 until a past date", status(503, "Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT"), publisher.Result{Outcome: publisher.Refused, Reason: "503"}},
		{"503 without", status(503), publisher.Result{Outcome: publisher.Refused, Reason: "503"}},
		{"500", status(500), publisher.Result{Outcome: publisher.Refused, Reason: "500"}},
		{"502", status(502), publisher.Result{Outcome: publisher.Unknown, Reason: "502"}},
		{"504", status(504), publisher.Result{Outcome: publisher.Unknown, Reason: "504"}},
		{"520", status(520), publisher.Result{Outcome: publisher.Unknown, Reason: "520"}},
		{"524", status(524), publisher.Result{Outcome: publisher.Unknown, Reason: "524"}},
		{"301", status(301, "Location", "https://example.com/new"), publisher.Result{Outcome: publisher.Refused, Reason: "301 Moved Permanently: redirects are not followed, name the target itself: https://example.com/new"}},
		{"hangs up", hijack(func(net.Conn) {}), publisher.Result{Outcome: publisher.Unknown, Reason: "EOF"}},
		{"hangs up in its head", write("HTTP/1.1 20"), publisher.Result{Outcome: publisher.Unknown}},
		{"hangs up after its status", write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx"), publisher.Result{Outcome: publisher.Confirmed}},
		{"no HTTP", write("hello\r\n"), publisher.Result{Outcome: publisher.Unknown}},
		{"endless head", hijack(func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 1<<20))
		}), publisher.Result{Outcome: publisher.Unknown}},
		{"endless body", hijack(func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			for _, err := c.Write(make([]byte, 1<<16)); err == nil; _, err = c.Write(make([]byte, 1<<16)) {
			}
		}), publisher.Result{Outcome: publisher.Confirmed}},
		{"body that never ends", hijack(func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx")
			<-hang
		}), publisher.Result{Outcome: publisher.Confirmed}},
		{"silence", hijack(func(net.Conn) { <-hang }), publisher.Result{Outcome: publisher.Unknown, Reason: "the receiver has not answered in time"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.handler)
			t.Cleanup(server.Close)
			wait := timeout
			if c.name == "silence" {
				wait = 2 * time.Second
			}
			p := publishertest.Closing(t, newPublisher(t, webhook.Config{Allow: loopback, Timeout: wait}))
			got := p.Publish(context.Background(), postdate.Channel(server.URL), batchOf(1))[0]
			if got.Outcome != c.want.Outcome || got.Permanent != c.want.Permanent || got.RetryAfter != c.want.RetryAfter || !strings.Contains(got.Reason, c.want.Reason) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// A receiver that does not exist is Down for the whole batch, after one attempt.
func TestNobodyThere(t *testing.T) {
	resolver, _ := names(t, func(string) net.IP { return nil })
	p := publishertest.Closing(t, newPublisher(t, webhook.Config{Allow: loopback, Resolver: resolver}))
	secure := httptest.NewTLSServer(newReceiver())
	defer secure.Close()
	for _, url := range []string{"http://" + proctest.Closed(t), "http://nowhere.test/", secure.URL} {
		for _, r := range p.Publish(context.Background(), postdate.Channel(url), batchOf(200)) {
			if r.Outcome != publisher.Down || !strings.HasPrefix(r.Reason, "the receiver cannot be reached: ") ||
				strings.Contains(r.Reason, "127.0.0.1") {
				t.Fatalf("%s: %v: %s", url, r.Outcome, r.Reason)
			}
		}
	}
	silent := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("udp", proctest.Closed(t))
	}}
	p = publishertest.Closing(t, newPublisher(t, webhook.Config{Resolver: silent}))
	r := p.Publish(context.Background(), "http://nowhere.test/", batchOf(1))[0]
	if want := "the receiver cannot be reached: the name nowhere.test cannot be resolved: "; r.Outcome != publisher.Down || !strings.HasPrefix(r.Reason, want) || strings.Contains(r.Reason, "127.0.0.1") {
		t.Errorf("without a name server: %v: %s", r.Outcome, r.Reason)
	}
}

// A slow receiver holds up a batch no longer than the timeout, and other receivers not at all.
func TestSlowReceiver(t *testing.T) {
	hang := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer slow.Close()
	defer close(hang)
	r := newReceiver()
	quick := httptest.NewServer(r)
	defer quick.Close()
	p := publishertest.Closing(t, newPublisher(t, webhook.Config{Allow: loopback, InFlight: 4, Timeout: 6 * time.Second}))
	var results []publisher.Result
	var wg sync.WaitGroup
	wg.Go(func() { results = p.Publish(context.Background(), postdate.Channel(slow.URL), batchOf(20)) })
	for _, r := range p.Publish(context.Background(), postdate.Channel(quick.URL), batchOf(50)) {
		if r.Outcome != publisher.Confirmed {
			t.Errorf("beside a slow receiver: %v: %s", r.Outcome, r.Reason)
		}
	}
	wg.Wait()
	counts := map[publisher.Outcome]int{}
	for _, r := range results {
		counts[r.Outcome]++
	}
	if counts[publisher.Unknown] < 4 || counts[publisher.Unknown] > 8 || counts[publisher.Unknown]+counts[publisher.Down] != 20 {
		t.Errorf("outcomes %v", counts)
	}
}

// A host gets messages in the order in which they came, in however many batches: who sends a few at a
// time gets no more of it than who sends as many at once.
func TestMessagesInTurn(t *testing.T) {
	const each, atOnce = 40, 4
	arrived, goOn := make(chan string, 2*each), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- r.URL.Path
		<-goOn
	}))
	defer s.Close()
	p := publishertest.Closing(t, newPublisher(t, webhook.Config{Allow: loopback, InFlight: atOnce}))
	var publishes sync.WaitGroup
	publishes.Go(func() { p.Publish(t.Context(), postdate.Channel(s.URL+"/first"), batchOf(each)) })
	var order []string
	for range atOnce {
		order = append(order, <-arrived)
	}
	var came sync.WaitGroup
	for range each {
		came.Add(1)
		publishes.Go(func() {
			came.Done()
			p.Publish(t.Context(), postdate.Channel(s.URL+"/second"), batchOf(1))
		})
	}
	came.Wait()
	for range 2*each - atOnce {
		goOn <- struct{}{}
		order = append(order, <-arrived)
	}
	close(goOn)
	publishes.Wait()
	if last := slices.Index(order, "/second"); last != each {
		t.Errorf("%d of the first %d messages went out before others", last, each)
	}
}

// Receivers that hang, each at a host of its own, take a bounded number of connections and none
// from a receiver that answers.
func TestReceiversThatHangTogether(t *testing.T) {
	good := httptest.NewServer(newReceiver())
	defer good.Close()
	hanging, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hanging.Close()
	var connected atomic.Int32
	full := make(chan struct{})
	const lane = 3 // of the 8 connections
	go func() {
		for {
			conn, err := hanging.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			if connected.Add(1) == lane {
				close(full)
			}
		}
	}()
	p := newPublisher(t, webhook.Config{Allow: []string{"127.0.0.0/8"}, Connections: 8})
	ctx, cancel := context.WithCancel(t.Context())
	to := postdate.Channel(good.URL)
	if r := p.Publish(ctx, to, batchOf(1))[0]; r.Outcome != publisher.Confirmed {
		t.Fatal(r)
	}
	outcomes := make(chan publisher.Outcome, 20*4)
	var publishes sync.WaitGroup
	for i := range 20 {
		publishes.Go(func() {
			channel := postdate.Channel(fmt.Sprintf("http://127.1.0.%d:%d/", i+1, hanging.Addr().(*net.TCPAddr).Port))
			for _, r := range p.Publish(ctx, channel, batchOf(4)) {
				outcomes <- r.Outcome
			}
		})
	}
	<-full
	for _, r := range p.Publish(ctx, to, batchOf(100)) {
		if r.Outcome != publisher.Confirmed {
			t.Fatalf("a receiver that answers got %v: %s", r.Outcome, r.Reason)
		}
	}
	cancel()
	publishes.Wait()
	close(outcomes)
	counts := map[publisher.Outcome]int{}
	for o := range outcomes {
		counts[o]++
	}
	if got := int(connected.Load()); got != lane || counts[publisher.Unknown] != lane || counts[publisher.Down] != 20*4-lane {
		t.Errorf("%d connections, %v: what was not sent is surely not delivered", got, counts)
	}
}

// What a receiver gets besides the payload, and what a client cannot set.
func TestRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	}))
	defer server.Close()
	const secret, next = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	p := publishertest.Closing(t, newPublisher(t, webhook.Config{Allow: loopback, Secrets: []string{next, secret}, Deployment: "db é-0badcafe"}))
	batch := batchOf(1)
	m := batch[0].Message
	m.Tenant, m.Traceparent = "acme/ö 1", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	m.Headers = []postdate.Header{
		{Name: "Authorization", Value: "Bearer x"}, {Name: "Connection", Value: "close"}, {Name: "Content-Length", Value: "1"},
		{Name: "Host", Value: "elsewhere.example"}, {Name: "Idempotency-Key", Value: "k"}, {Name: "Transfer-Encoding", Value: "chunked"},
		{Name: "ce-id", Value: "forged"}, {Name: "webhook-signature", Value: "forged"}, {Name: "x-mine", Value: "1"},
	}
	if r := p.Publish(context.Background(), postdate.Channel(server.URL+"/a%2Fb?c=d"), batch)[0]; r.Outcome != publisher.Confirmed {
		t.Fatalf("%v: %s", r.Outcome, r.Reason)
	}
	for name, want := range map[string]string{
		"Ce-Specversion": "1.0", "Ce-Id": "m-0", "Ce-Source": "/postdate/db%20%C3%A9-0badcafe/acme%2F%C3%B6%201", "Ce-Type": "postdate.message", "Ce-Time": "2027-01-15T08:00:00.123Z",
		"Content-Type": "application/json", "Webhook-Id": "m-0", "Authorization": "Bearer x", "X-Mine": "1", "Idempotency-Key": "k",
		"Connection": "", "Transfer-Encoding": "", "Traceparent": m.Traceparent, "User-Agent": "Postdate",
	} {
		if have := got.Header.Get(name); have != want || len(got.Header[name]) > 1 {
			t.Errorf("header %s is %q, want %q", name, got.Header[name], want)
		}
	}
	if got.Method != "POST" || got.RequestURI != "/a%2Fb?c=d" || got.Host != strings.TrimPrefix(server.URL, "http://") || got.ContentLength != 7 || string(body) != string(m.Payload) {
		t.Errorf("got %s %s for host %s, %d bytes: %s", got.Method, got.RequestURI, got.Host, got.ContentLength, body)
	}
	for _, id := range []string{"m.0", "m-0"} { // what is signed has a dot after the id
		m.ScheduleID = id
		if r := p.Publish(context.Background(), postdate.Channel(server.URL), batch)[0]; r.Outcome != publisher.Confirmed {
			t.Fatalf("%v: %s", r.Outcome, r.Reason)
		}
		if signed := got.Header.Get("Webhook-Id"); strings.Contains(signed, ".") || got.Header.Get("Postdate-Schedule-Id") != id || signed == id != (id == "m-0") {
			t.Errorf("the id %s is signed as %q", id, signed)
		}
		verifies(t, body, got.Header, secret, next)
	}
}

// verifies checks a request's signature by each of the secrets.
func verifies(t *testing.T, body []byte, header http.Header, secrets ...string) {
	t.Helper()
	for _, s := range secrets {
		w, err := standardwebhooks.NewWebhook(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Verify(body, header); err != nil {
			t.Errorf("the signature: %v", err)
		}
	}
}

// The secrets of a channel sign alone where there are any, else those of its host, else those for
// all.
func TestTheNearestSecretsSign(t *testing.T) {
	var got http.Header
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r.Header
		body, _ = io.ReadAll(r.Body)
	}))
	defer server.Close()
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(server.URL, "http://"))
	resolver, _ := names(t, func(string) net.IP { return net.IPv4(127, 0, 0, 1) })
	secret := func(i int) string { // with = at its end
		return "whsec_" + base64.StdEncoding.EncodeToString([]byte(fmt.Sprintf("%032d", i)))
	}
	one, two := "http://one.test:"+port, "http://two.test:"+port
	p := publishertest.Closing(t, newPublisher(t, webhook.Config{Allow: loopback, Resolver: resolver, Secrets: []string{
		secret(0), "One.Test.=" + secret(1), "one.test=" + secret(2), one + "/a?to=whsec_b==" + secret(3), one + "/a?to=whsec_b==" + secret(4), two + "/a=" + secret(5), "127.0.0.1=" + secret(6),
	}}))
	for channel, want := range map[string][]string{
		one + "/": {secret(1), secret(2)}, one + "/a": {secret(1), secret(2)}, one + "/a?to=whsec_b=": {secret(3), secret(4)},
		two + "/a": {secret(5)}, two + "/a/": {secret(0)}, two + "/": {secret(0)}, server.URL: {secret(6)},
	} {
		if r := p.Publish(context.Background(), postdate.Channel(channel), batchOf(1))[0]; r.Outcome != publisher.Confirmed {
			t.Fatalf("%s: %v: %s", channel, r.Outcome, r.Reason)
		}
		if n := len(strings.Fields(got.Get("Webhook-Signature"))); n != len(want) {
			t.Errorf("%s has %d signatures, want %d", channel, n, len(want))
		}
		verifies(t, body, got, want...)
	}
	p = publishertest.Closing(t, newPublisher(t, webhook.Config{Allow: loopback, Resolver: resolver, Secrets: []string{"one.test=" + secret(1)}}))
	if p.Publish(context.Background(), postdate.Channel(two), batchOf(1)); got.Get("Webhook-Id")+got.Get("Webhook-Signature") != "" {
		t.Errorf("another host's secret signs: %v", got)
	}
}

// names is a name server whose answers may change: nil for a name that does not exist.
func names(t *testing.T, answer func(name string) net.IP) (*net.Resolver, *atomic.Int64) {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	var asked atomic.Int64
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			asked.Add(1)
			_, _ = c.WriteTo(dnsAnswer(b[:n], answer), from)
		}
	}()
	dialer := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", c.LocalAddr().String())
	}
	return &net.Resolver{PreferGo: true, Dial: dialer}, &asked
}

// dnsAnswer answers a DNS question for an IPv4 address.
func dnsAnswer(question []byte, answer func(string) net.IP) []byte {
	end, name := 12, ""
	for question[end] != 0 {
		name += string(question[end+1:end+1+int(question[end])]) + "."
		end += 1 + int(question[end])
	}
	kind := binary.BigEndian.Uint16(question[end+1:])
	reply := slices.Clone(question[:end+5])
	copy(reply[2:], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0})
	ip := answer(name).To4()
	switch {
	case ip == nil:
		reply[3] |= 3
	case kind == 1:
		reply[7] = 1
		reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		reply = append(reply, ip...)
	}
	return reply
}

// A name whose address changes from an allowed one to one that is not public gets nothing; nor
// does an address that a redirect names. 127.0.0.2 stands for a private address, 127.0.0.1 for
// a public one.
func TestRebindingAndRedirects(t *testing.T) {
	var inner atomic.Int64
	private, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(private.Addr().String())
	secret := &httptest.Server{Listener: private, Config: &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inner.Add(1) })}}
	secret.Start()
	defer secret.Close()
	public, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	outer := &httptest.Server{Listener: public, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		if r.URL.Path == "/redirect" {
			http.Redirect(w, r, secret.URL, http.StatusTemporaryRedirect)
		}
	})}}
	outer.Start()
	defer outer.Close()

	var rebound atomic.Bool
	resolver, asked := names(t, func(string) net.IP {
		if rebound.Load() {
			return net.IPv4(127, 0, 0, 2)
		}
		return net.IPv4(127, 0, 0, 1)
	})
	p := publishertest.Closing(t, newPublisher(t, webhook.Config{Allow: loopback, Resolver: resolver}))
	publish := func(path string) publisher.Result {
		return p.Publish(context.Background(), postdate.Channel("http://rebinder.test:"+port+path), batchOf(1))[0]
	}
	if r := publish("/"); r.Outcome != publisher.Confirmed {
		t.Fatalf("%v: %s", r.Outcome, r.Reason)
	}
	if r := publish("/redirect"); r.Outcome != publisher.Refused || !strings.HasPrefix(r.Reason, "307 ") {
		t.Errorf("a redirect: %v: %s", r.Outcome, r.Reason)
	}
	rebound.Store(true)
	if r := publish("/"); r.Outcome != publisher.Refused || r.Permanent || strings.Contains(r.Reason, "127.0.0") || !strings.Contains(r.Reason, "not public") || !strings.Contains(r.Reason, "--webhook-allow") {
		t.Errorf("a name that was rebound: %v: %s", r.Outcome, r.Reason)
	}
	if inner.Load() != 0 || asked.Load() == 0 {
		t.Errorf("the private receiver was asked %d times, the name server %d times", inner.Load(), asked.Load())
	}
	allowed := publishertest.Closing(t, newPublisher(t, webhook.Config{Allow: []string{"Rebinder.Test"}, Resolver: resolver}))
	if r := allowed.Publish(context.Background(), postdate.Channel("http://rebinder.test:"+port), batchOf(1))[0]; r.Outcome != publisher.Confirmed || inner.Load() != 1 {
		t.Errorf("a host that is allowed by name: %v: %s", r.Outcome, r.Reason)
	}
}

// The environment's proxy is never used.
func TestNoProxy(t *testing.T) {
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	resolver, _ := names(t, func(string) net.IP { return nil })
	p := publishertest.Closing(t, newPublisher(t, webhook.Config{Allow: loopback, Resolver: resolver}))
	if r := p.Publish(context.Background(), "http://example.test/", batchOf(1))[0]; r.Outcome != publisher.Down || asked.Load() != 0 {
		t.Errorf("%v: %s; the proxy was asked %d times", r.Outcome, r.Reason, asked.Load())
	}
}

func TestChecks(t *testing.T) {
	p := publishertest.Closing(t, newPublisher(t, webhook.Config{Allow: []string{"10.1.0.0/16", "internal.example", "fd00:1::/32", "2001:db8:1::/48"}}))
	for _, good := range []postdate.Channel{
		"https://example.com", "https://example.com:8443/a/b?c=d", "http://10.1.2.3/", "http://[2606:4700::1111]/", "https://INTERNAL.example/", "http://8.8.8.8", "http://[64:ff9b::8.8.8.8]/", "http://[fd00:1::5]/", "http://[2001:db8:1::5]/", "http://[64:ff9b::10.1.2.3]/",
	} {
		if err := p.Check(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for bad, want := range map[postdate.Channel]string{
		"https:": "names no host", "https://": "names no host", "https:example.com": "not a URL", "http://:80/": "names no host",
		"https://u:p@example.com/": "user and password", "https://example.com/#a": "fragment", "https://example.com/#": "fragment",
		"https://example.com:0/": "port", "https://example.com:70000/": "port", "https://example.com:/": "port",
		"ftp://example.com/": "not a URL", "https://exa mple.com/": "not a URL", "http://[fe80::1%25eth0]/": "no host",
		"http://127.0.0.1/": "not public", "http://localhost:8080/": "this machine", "http://a.localhost./": "this machine",
		"http://10.2.0.1/": "not public", "http://169.254.169.254/latest/": "not public", "http://100.100.0.1/": "not public",
		"http://[2001::1]/": "not public", "http://[2001:db8::1]/": "not public", "http://[3fff::1]/": "not public", "http://[5f00::1]/": "not public", "http://[100::1]/": "not public", "http://[::1]/": "not public", "http://[::ffff:10.0.0.1]/": "not public", "http://[64:ff9b::10.0.0.1]/": "not public",
		"http://[fd00::1]/": "not public", "http://[::]/": "not public", "http://0.0.0.0/": "not public", "http://224.0.0.1/": "not public",
		"http://[2002:7f00:1::]/": "not public", "http://[1000::1]/": "not public", "http://[4000::1]/": "not public", "http://[64:ff9b:1::1]/": "not public", "http://[fec0::1]/": "not public", "http://[::127.0.0.1]/": "not public", "http://255.255.255.255/": "not public",
	} {
		if err := p.Check(bad); postdate.KindOf(err) != postdate.KindInvalid || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
	for _, bad := range []postdate.Channel{"https://h.example/s3cret#a", "https://h.example:0/s3cret", "https://exa mple.com/s3cret", "http://10.2.0.1/s3cret", "http://localhost/?s3cret", "https:///s3cret", "https:s3cret"} {
		if err := p.Check(bad); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error, which logs may quote, has the path: %v", bad, err)
		}
	}
}

func TestConfigSaysWhatIsWrong(t *testing.T) {
	for want, c := range map[string]webhook.Config{
		"cannot be allowed":       {Allow: []string{"http://x/"}},
		"webhook secret 1 is not": {Secrets: []string{"top-secret"}},
		"of 24 to 64 bytes":       {Secrets: []string{"whsec_AAAA"}},
		"negative":                {Timeout: -1},
		"not between 1 and":       {InFlight: 5000},
	} {
		if _, err := webhook.New(c); postdate.KindOf(err) != postdate.KindInvalid || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "top-secret") {
			t.Errorf("%v: want %q", err, want)
		}
	}
	const good = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	for bad, want := range map[string]string{
		"h.example=top-secret": "not whsec_", "h.example=whsec_top-secret": "not whsec_", "=" + good: "for no host", ".=" + good: "for no host", "h.example:8443=" + good: "for no host",
		"h.example/top-secret=" + good: "for no host", "rabbitmq:top-secret=" + good: "for no host", "https://u:top-secret@h.example/=" + good: "for no host", "https:///top-secret=" + good: "for no host",
	} {
		err := webhook.Config{Secrets: []string{good, bad}}.Validate()
		if postdate.KindOf(err) != postdate.KindInvalid || !strings.Contains(err.Error(), "webhook secret 2 is "+want) || strings.Contains(err.Error(), "top-secret") || strings.Contains(err.Error(), good) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}

// TLS receivers are verified by name.
func TestTLS(t *testing.T) {
	server := httptest.NewTLSServer(newReceiver())
	defer server.Close()
	pool := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	p := publishertest.Closing(t, newPublisher(t, webhook.Config{Allow: loopback, TLS: &tls.Config{RootCAs: pool}}))
	if r := p.Publish(context.Background(), postdate.Channel(server.URL), batchOf(3))[2]; r.Outcome != publisher.Confirmed {
		t.Errorf("%v: %s", r.Outcome, r.Reason)
	}
	resolver, _ := names(t, func(string) net.IP { return net.IPv4(127, 0, 0, 1) })
	p = publishertest.Closing(t, newPublisher(t, webhook.Config{Allow: loopback, Resolver: resolver, TLS: &tls.Config{RootCAs: pool}}))
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(server.URL, "https://"))
	r := p.Publish(context.Background(), postdate.Channel("https://other.test:"+port), batchOf(1))[0]
	if r.Outcome != publisher.Down || !strings.Contains(r.Reason, "certificate is for another name") || strings.Contains(r.Reason, "example.com") {
		t.Errorf("a certificate for example.com: %v: %s", r.Outcome, r.Reason)
	}
}
