package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/postdate/postdate/internal/certtest"
)

// What would go where it is not meant to go, or is no key, is not sent.
func TestNothingIsSentInTheClear(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asked := make(chan struct{})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(asked)
				return
			}
			t.Error("somebody connected")
			c.Close()
		}
	}()
	authority := certtest.NewAuthority(t)
	me := authority.Issue(t, "me")
	address := l.Addr().String()
	whole := "pd_k3v9x0q2m7ab_" + strings.Repeat("a", 43)
	for _, command := range [][]string{{"get", "x"}, {"tail", "inbox:x"}, {"keys", "list"}, {"bench"}} {
		for _, test := range []struct {
			env  []string
			args []string
			want string
		}{
			{nil, []string{"--server", "http://" + address, "--tls-ca", authority.File}, "write https://"},
			{nil, []string{"--server", address, "--tls-cert", me.Cert, "--tls-key", me.Key}, "write https://"},
			{[]string{"POSTDATE_SERVER=" + address, "POSTDATE_TLS_CA=" + authority.File}, nil, "write https://"},
			{nil, []string{"--server", "http://" + address + "/v1"}, "without /v1"},
			{nil, []string{"--server", "http://" + address + "/v1/"}, "without /v1"},
			{nil, []string{"--server", address, "--api-key", whole[:58]}, "--api-key (or POSTDATE_API_KEY): this is not a whole key"},
			{nil, []string{"--server", address, "--api-key", "pd_k3v9x0q2m7ab"}, "--api-key (or POSTDATE_API_KEY): this is not a whole key"},
			{[]string{"POSTDATE_API_KEY=" + whole + " "}, []string{"--server", address}, "POSTDATE_API_KEY"},
			{nil, []string{"--server", address, "--api-key", "hunter2"}, "--api-key (or POSTDATE_API_KEY): this is not a whole key"},
		} {
			r := call(test.env, "", append(command, test.args...)...)
			if r.code != exitUsage || !strings.Contains(r.stderr, test.want) || strings.Contains(r.stderr, "hunter2") || strings.Contains(r.stderr, strings.Repeat("a", 40)) {
				t.Errorf("%v %v %v: %+v, want %q", command, test.env, test.args, r, test.want)
			}
		}
	}
	l.Close()
	<-asked
}

// Who speaks plain HTTP to what speaks TLS gets a hint, whatever that answers.
func TestHintOfTLS(t *testing.T) {
	for _, answer := range []string{"", "\x15\x03\x01\x00\x02\x02\x16"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 4096))
				_, _ = c.Write([]byte(answer))
				c.Close()
			}
		}()
		for _, args := range [][]string{{"get", "x"}, {"cancel", "x"}, {"send", "--in", "1h", "--channel", "inbox:x", "--data", "x"}, {"bench"}} {
			r := call(nil, "", append(args, "--server", l.Addr().String())...)
			if r.code != exitFailed || !strings.Contains(r.stderr, "if the node speaks TLS, write https://") {
				t.Errorf("%q to %v: %+v", answer, args, r)
			}
		}
	}
}

// Bench speaks TLS as the other commands do.
func TestBenchWithTLS(t *testing.T) {
	t.Parallel()
	authority := certtest.NewAuthority(t)
	node := authority.Issue(t, "node")
	s := startServe(t, nil, "--tls-cert", node.Cert, "--tls-key", node.Key, "--tls-client-ca", authority.File)
	defer func() {
		_ = s.Process.Signal(os.Interrupt)
		_ = s.Wait()
	}()
	args := []string{"bench", "--server", "https://" + s.ready.HTTP, "--tls-ca", authority.File, "--callers", "4",
		"--messages", "40", "--batch", "10", "--rate", "20", "--duration", "1s"}
	if r := call(nil, "", append(args, "--tls-cert", node.Cert, "--tls-key", node.Key)...); r.code != exitOK {
		t.Errorf("%+v", r)
	}
	if r := call(nil, "", args...); r.code != exitFailed || !strings.Contains(r.stderr, "--tls-cert and --tls-key") {
		t.Errorf("without a certificate: %+v", r)
	}
}

// A command has its settings from its own flags and variables, and the demo has none: the client adds nothing.
func TestConnectLeavesTheEnvironment(t *testing.T) {
	t.Setenv("POSTDATE_API_KEY", "a-key")
	t.Setenv("POSTDATE_AS_TENANT", "acme")
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header["Authorization"] != nil || r.Header["Postdate-Tenant"] != nil {
			t.Errorf("asked with %v", r.Header)
		}
	}))
	defer s.Close()
	c, err := connect(s.URL, "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Health(t.Context()); err != nil {
		t.Error(err)
	}
}
