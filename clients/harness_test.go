package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postdate/postdate/api"
)

// harness is a node that players can kill and start again, and see through a proxy with faults.
type harness struct {
	*node
	control  string // the harness's own URL
	proxy    *httputil.ReverseProxy
	examples map[string]example // by a problem's type

	faults sync.Mutex
	next   fault // what becomes of the next request
}

// fault says what becomes of a request.
type fault struct {
	Answer, Cut, Hang string
	Then              *fault // of the request after it
}

// example is the document's example of a problem.
type example struct {
	Status int
	text   []byte
}

// newHarness starts a node and its harness.
func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{node: newNode(t), examples: problems(t)}
	to, err := url.Parse(h.url)
	if err != nil {
		t.Fatal(err)
	}
	h.proxy = httputil.NewSingleHostReverseProxy(to)
	h.proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	mux := http.NewServeMux()
	mux.HandleFunc("POST /kill", h.serveKill)
	mux.HandleFunc("POST /start", h.serveStart)
	mux.HandleFunc("POST /fault", h.serveFault)
	mux.Handle("/node/", http.StripPrefix("/node", http.HandlerFunc(h.serveNode)))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	h.control = server.URL
	return h
}

// play lets the player of a language play the scenario. It says what it did, and fails if that is not as it
// is wanted.
func (h *harness) play(player *exec.Cmd) {
	h.t.Helper()
	scenario, err := filepath.Abs(scenarioPath)
	if err != nil {
		h.t.Fatal(err)
	}
	player.Env = append(player.Environ(), "POSTDATE_SERVER="+h.url, "POSTDATE_API_KEY="+adminKey,
		"POSTDATE_HARNESS="+h.control, "POSTDATE_SCENARIO="+scenario)
	var said bytes.Buffer
	player.Stdout, player.Stderr = &said, &said
	end, err := h.group.Start(player)
	if err != nil {
		h.t.Fatal(err)
	}
	select {
	case <-end:
	case <-time.After(playMax):
		h.group.End()
		<-end
	}
	if !player.ProcessState.Success() {
		h.t.Fatalf("%s: %v after at most %v\n%s", player, player.ProcessState, playMax, &said)
	}
}

// playMax bounds a player that does not keep to the bounds of its steps.
const playMax = 4 * time.Minute

func (h *harness) serveKill(w http.ResponseWriter, _ *http.Request) {
	if err := h.kill(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (h *harness) serveStart(w http.ResponseWriter, r *http.Request) {
	after := r.FormValue("after")
	if after == "" {
		if err := h.start(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
		return
	}
	d, err := time.ParseDuration(after)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	started := make(chan struct{})
	time.AfterFunc(d, func() {
		defer close(started)
		if err := h.start(); err != nil {
			h.t.Error(err)
		}
	})
	h.t.Cleanup(func() { <-started })
}

func (h *harness) serveFault(w http.ResponseWriter, r *http.Request) {
	var f fault
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&f)
	for each := &f; err == nil && each != nil; each = each.Then {
		if _, known := h.examples[each.Answer]; each.Answer != "" && !known {
			err = fmt.Errorf("the document has no example of the problem %q", each.Answer)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.faults.Lock()
	h.next = f
	h.faults.Unlock()
}

// serveNode passes a request on, or does what the fault says.
func (h *harness) serveNode(w http.ResponseWriter, r *http.Request) {
	h.faults.Lock()
	f := h.next
	h.next = fault{}
	if f.Then != nil {
		h.next = *f.Then
	}
	h.faults.Unlock()
	body, err := io.ReadAll(r.Body) // a request that is not read whole cannot be answered
	if f.Cut == "before" || err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if e, ok := h.examples[f.Answer]; ok {
		w.Header().Set("Content-Type", "application/problem+json")
		if e.Status == http.StatusServiceUnavailable || e.Status == http.StatusGatewayTimeout {
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader(e.Status)
		w.Write(e.text)
		return
	}
	if f.Cut == "after" || f.Hang == "after" {
		h.proxy.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
		if f.Hang == "after" {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}
	h.proxy.ServeHTTP(w, r)
}

// problems returns the document's examples of problems, and bare ones of those that have none.
func problems(t *testing.T) map[string]example {
	t.Helper()
	var doc any
	if err := json.Unmarshal(api.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	all := map[string]example{}
	collect(doc, all)
	for name, status := range map[string]int{"conflict": 409, "request-timeout": 408} {
		if _, ok := all[name]; !ok {
			text := fmt.Appendf(nil, `{"type":%q,"title":"A fault","status":%d,"detail":"a fault of the harness"}`,
				api.ProblemPrefix+name, status)
			all[name] = example{Status: status, text: text}
		}
	}
	return all
}

// collect finds examples of problems anywhere in the document.
func collect(in any, all map[string]example) {
	switch in := in.(type) {
	case []any:
		for _, v := range in {
			collect(v, all)
		}
	case map[string]any:
		for _, v := range in {
			collect(v, all)
		}
		name, _ := in["type"].(string)
		status, isNumber := in["status"].(float64)
		if short, ok := strings.CutPrefix(name, api.ProblemPrefix); ok && isNumber {
			text, _ := json.Marshal(in) // it came from JSON
			all[short] = example{Status: int(status), text: text}
		}
	}
}
