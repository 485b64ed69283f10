package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// standIn takes the place of a server: enough of the API, in memory, to test the client
// commands. The api package tests that a real server answers in this way; the demo and bench
// tests here use a real node.
type standIn struct {
	mu       sync.Mutex
	messages map[string]map[string]any // by schedule id
	bodies   []string                  // of all POST requests
	inbox    []map[string]any
	grown    chan struct{} // closed and replaced when the inbox grows
	queries  []string
	stats    []byte // what GET /v1/stats answers
}

func newStandIn() *standIn {
	return &standIn{messages: make(map[string]map[string]any), grown: make(chan struct{})}
}

// start serves the stand-in on a free port until the test ends.
func (s *standIn) start(t *testing.T) (url string) {
	t.Helper()
	server := httptest.NewServer(s.handler())
	t.Cleanup(server.Close)
	return server.URL
}

func (s *standIn) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", s.schedule)
	mux.HandleFunc("GET /v1/messages", s.list)
	mux.HandleFunc("GET /v1/messages/{id}", s.get)
	mux.HandleFunc("DELETE /v1/messages/{id}", s.cancel)
	mux.HandleFunc("PATCH /v1/messages/{id}", s.patch)
	mux.HandleFunc("POST /v1/messages/{id}/trigger", s.trigger)
	mux.HandleFunc("GET /v1/inbox/{name}", s.readInbox)
	mux.HandleFunc("GET /v1/cluster", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"node":"n1","members":[{"node":"n1","address":"127.0.0.1:7946","state":"alive","clockOffsetMs":-3,"lease":{"id":"n1/1","lastsMs":5000,"leftMs":4712}},
				{"node":"n2","address":"127.0.0.1:7947","state":"lost"}],
			"buckets":[{"bucket":0,"owner":"n1","token":3,"checkpoint":"2027-01-31T09:30:00.000Z","claimed":"2027-01-31T09:30:01.000Z","lag":1200},
			           {"bucket":1,"owner":"","token":0,"checkpoint":"1970-01-01T00:00:00.000Z","claimed":"1970-01-01T00:00:00.000Z","lag":0}]}`)
	})
	mux.HandleFunc("GET /v1/channels", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"channels":[{"channel":"inbox:a","state":"up","maxPerSecond":2.5,"pending":1280,"due":0},
			{"channel":"rabbitmq:b","state":"down","inHand":3,"inFlight":1,"parked":true,"deliveredPerSecond":1234.568,"pending":15,"due":12,"exact":true,"failureChannel":"inbox:f",
			 "lastError":"refused","lastErrorAt":"2027-01-31T09:30:00.000Z","lastErrorNode":"n2"}],"missing":["n3"]}`)
	})
	mux.HandleFunc("GET /v1/stats", func(w http.ResponseWriter, _ *http.Request) {
		w.Write(s.stats)
	})
	return mux
}

func (s *standIn) schedule(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		problemJSON(w, http.StatusBadRequest, "the body is not JSON: "+err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies = append(s.bodies, string(body))
	if m["channel"] == "nowhere:x" {
		problemJSON(w, http.StatusBadRequest, `there is no broker "nowhere": name one of inbox, rabbitmq`)
		return
	}
	id, _ := m["scheduleId"].(string)
	if id == "" {
		id = "made-" + strconv.Itoa(len(s.messages))
	}
	status := http.StatusCreated
	if _, again := s.messages[id]; again {
		status = http.StatusOK
	}
	m["scheduleId"], m["status"] = id, "PENDING"
	if m["executionTime"] == nil {
		m["executionTime"] = "2027-01-31T09:30:00.000Z"
	}
	s.messages[id] = m
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"scheduleId": id, "bucket": 7, "executionTime": m["executionTime"], "status": "PENDING"})
}

func (s *standIn) get(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.messages[r.PathValue("id")]
	if !ok {
		problemJSON(w, http.StatusNotFound, fmt.Sprintf("there is no message %q", r.PathValue("id")))
		return
	}
	json.NewEncoder(w).Encode(m)
}

func (s *standIn) cancel(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.PathValue("id")
	m, ok := s.messages[id]
	switch {
	case !ok:
		problemJSON(w, http.StatusNotFound, fmt.Sprintf("there is no message %q", id))
	case m["status"] == "DELIVERED":
		problemJSON(w, http.StatusConflict, fmt.Sprintf("message %q is DELIVERED: too late to cancel it", id))
	default:
		m["status"] = "CANCELLED"
		json.NewEncoder(w).Encode(map[string]any{"scheduleId": id, "status": "CANCELLED"})
	}
}

// patch pauses and resumes.
func (s *standIn) patch(w http.ResponseWriter, r *http.Request) {
	var change struct{ Paused bool }
	if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
		problemJSON(w, http.StatusBadRequest, "the body is not JSON: "+err.Error())
		return
	}
	if m, series := s.series(w, r); m != nil {
		series["paused"] = change.Paused
		json.NewEncoder(w).Encode(map[string]any{"scheduleId": m["scheduleId"], "status": "PENDING"})
	}
}

func (s *standIn) trigger(w http.ResponseWriter, r *http.Request) {
	if m, series := s.series(w, r); m != nil {
		fired := series["fired"].(int) + 1
		series["fired"] = fired
		w.WriteHeader(http.StatusCreated)
		json.NewEncoder(w).Encode(map[string]any{"scheduleId": fmt.Sprintf("%v/2027-01-31T09:30:00.00%dZ", m["scheduleId"], fired), "status": "PENDING"})
	}
}

// series returns the message that the path names, if it recurs. Otherwise it answers.
func (s *standIn) series(w http.ResponseWriter, r *http.Request) (m, series map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.messages[r.PathValue("id")]
	series, recurs := m["series"].(map[string]any)
	switch {
	case !ok:
		problemJSON(w, http.StatusNotFound, fmt.Sprintf("there is no message %q", r.PathValue("id")))
	case !recurs:
		problemJSON(w, http.StatusBadRequest, "the message does not recur")
	default:
		return m, series
	}
	return nil, nil
}

// list pages by id, two at a time, whatever the limit: a page may always be shorter.
func (s *standIn) list(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries = append(s.queries, r.URL.RawQuery)
	ids := make([]string, 0, len(s.messages))
	for id := range s.messages {
		if id > r.FormValue("cursor") {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	limit, _ := strconv.Atoi(r.FormValue("limit"))
	answer := map[string]any{}
	page := []any{}
	for i, id := range ids {
		if i == min(limit, 2) {
			answer["nextCursor"] = ids[i-1]
			break
		}
		page = append(page, s.messages[id])
	}
	answer["messages"] = page
	json.NewEncoder(w).Encode(answer)
}

// deliver puts a message into the one inbox.
func (s *standIn) deliver(id string, marked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inbox = append(s.inbox, map[string]any{
		"scheduleId": id, "executionTime": "2027-01-31T09:30:00.000Z", "deliveredAt": "2027-01-31T09:30:00.004Z",
		"attempt": 1, "possibleDuplicate": marked, "contentType": "text/plain", "payload": "hello", "headers": map[string]string{},
	})
	close(s.grown)
	s.grown = make(chan struct{})
}

func (s *standIn) readInbox(w http.ResponseWriter, r *http.Request) {
	if name := r.PathValue("name"); strings.Contains(name, "/") {
		problemJSON(w, http.StatusBadRequest, fmt.Sprintf("inbox name %q has a forbidden character", name))
		return
	}
	after, _ := strconv.Atoi(r.FormValue("after"))
	wait, _ := time.ParseDuration(r.FormValue("wait"))
	timeout := time.After(wait)
	for waiting := true; ; {
		s.mu.Lock()
		page, grown := s.inbox[min(after, len(s.inbox)):], s.grown
		s.mu.Unlock()
		if len(page) > 0 || !waiting {
			json.NewEncoder(w).Encode(map[string]any{"messages": page, "nextCursor": strconv.Itoa(after + len(page))})
			return
		}
		select {
		case <-timeout:
			waiting = false
		case <-r.Context().Done():
			return
		case <-grown:
		}
	}
}

func problemJSON(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(status), "status": status, "detail": detail})
}
