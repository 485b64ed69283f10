// Command floor is the least that a queue with Postdate's API can be: the same HTTP server, a map and a heap. It
// keeps no index, checks nothing, and forgets everything when it ends. With -log it also appends what it takes,
// cancels and delivers to one file, and answers only once that is synced.
//
// So what Postdate costs beyond it is, about, the price of its checks and of its store. It is no proof: it decodes
// with encoding/json, and its log grows as it is written.
package main

import (
	"container/heap"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// message is a message in the API's form, as far as the load needs it.
type message struct {
	ScheduleID    string    `json:"scheduleId"`
	ExecutionTime time.Time `json:"executionTime"`
	ContentType   string    `json:"contentType"`
	Payload       string    `json:"payload"`
}

// result is what a schedule answers.
type result struct {
	ScheduleID string `json:"scheduleId"`
	Status     string `json:"status"`
}

// queue is the whole state.
type queue struct {
	log *groupLog // nil: none

	mu      sync.Mutex
	pending map[string]*message
	due     dueHeap
	inbox   []*message
	news    chan struct{} // closed when the inbox has more
	sooner  chan struct{} // gets a value if what is due first may have changed
}

func main() {
	address := flag.String("http", "", "listen here")
	log := flag.String("log", "", "append what happens to this file")
	flag.Parse()
	if flag.Arg(0) == "version" {
		fmt.Println("floor")
		return
	}
	q := &queue{pending: map[string]*message{}, news: make(chan struct{}), sooner: make(chan struct{}, 1)}
	var err error
	if *log != "" {
		q.log, err = openLog(*log)
	}
	if err == nil {
		go q.deliver()
		err = fasthttp.ListenAndServe(*address, q.serve)
	}
	fmt.Fprintln(os.Stderr, "floor:", err)
	os.Exit(1)
}

// serve answers a request.
func (q *queue) serve(r *fasthttp.RequestCtx) {
	path := string(r.Path())
	switch method := string(r.Method()); {
	case method == fasthttp.MethodPost && path == "/v1/messages":
		m := &message{}
		if q.take(r, m) {
			answer(r, fasthttp.StatusCreated, q.schedule([]*message{m})[0])
		}
	case method == fasthttp.MethodPost && path == "/v1/messages/batch":
		var messages []*message
		if q.take(r, &messages) {
			answer(r, fasthttp.StatusOK, map[string][]result{"results": q.schedule(messages)})
		}
	case method == fasthttp.MethodDelete:
		id := strings.TrimPrefix(path, "/v1/messages/")
		if q.logged(r, []byte(id)) {
			answer(r, fasthttp.StatusOK, q.cancel([]string{id})[0])
		}
	case method == fasthttp.MethodPost && path == "/v1/messages/cancel":
		var batch struct {
			ScheduleIDs []string `json:"scheduleIds"`
		}
		if q.take(r, &batch) {
			answer(r, fasthttp.StatusOK, map[string][]result{"results": q.cancel(batch.ScheduleIDs)})
		}
	case strings.HasPrefix(path, "/v1/inbox/"):
		q.read(r)
	case path != "/readyz":
		r.Error(path+" is not needed here", fasthttp.StatusNotFound)
	}
}

// take reads the body of a request and logs it. If it cannot, it answers so.
func (q *queue) take(r *fasthttp.RequestCtx, into any) (taken bool) {
	if err := json.Unmarshal(r.PostBody(), into); err != nil {
		r.Error(err.Error(), fasthttp.StatusBadRequest)
		return false
	}
	return q.logged(r, r.PostBody())
}

// logged logs what a request asks for. If it cannot, it answers so.
func (q *queue) logged(r *fasthttp.RequestCtx, what []byte) bool {
	err := q.log.append(what)
	if err != nil {
		r.Error(err.Error(), fasthttp.StatusServiceUnavailable)
	}
	return err == nil
}

func (q *queue) schedule(messages []*message) []result {
	results := make([]result, len(messages))
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, m := range messages {
		q.pending[m.ScheduleID] = m
		heap.Push(&q.due, m)
		results[i] = result{m.ScheduleID, "PENDING"}
	}
	select {
	case q.sooner <- struct{}{}:
	default:
	}
	return results
}

func (q *queue) cancel(ids []string) []result {
	results := make([]result, len(ids))
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, id := range ids {
		delete(q.pending, id) // the heap keeps it until it is due
		results[i] = result{id, "CANCELLED"}
	}
	return results
}

// deliver moves what is due into the inbox.
func (q *queue) deliver() {
	for {
		due, next := q.takeDue(time.Now())
		if len(due) == 0 {
			q.wait(next)
			continue
		}
		var delivered []byte
		for _, m := range due {
			delivered = append(append(delivered, m.ScheduleID...), m.Payload...)
		}
		if err := q.log.append(delivered); err != nil {
			fmt.Fprintln(os.Stderr, "floor:", err)
			os.Exit(1)
		}
		q.mu.Lock()
		q.inbox = append(q.inbox, due...)
		close(q.news)
		q.news = make(chan struct{})
		q.mu.Unlock()
	}
}

// takeDue takes out what is due and not cancelled. If it finds nothing, next is how long that may last.
func (q *queue) takeDue(now time.Time) (due []*message, next time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.due) > 0 {
		if next = q.due[0].ExecutionTime.Sub(now); next > 0 {
			return due, next
		}
		m := heap.Pop(&q.due).(*message)
		if _, found := q.pending[m.ScheduleID]; found {
			delete(q.pending, m.ScheduleID)
			due = append(due, m)
		}
	}
	return due, time.Hour
}

func (q *queue) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-q.sooner:
	}
}

// read answers a page of the inbox, and waits for its first message if it has to.
func (q *queue) read(r *fasthttp.RequestCtx) {
	query := r.QueryArgs()
	after, limit := query.GetUintOrZero("after"), query.GetUintOrZero("limit")
	wait, _ := time.ParseDuration(string(query.Peek("wait")))
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for over := false; ; {
		q.mu.Lock()
		from := min(after, len(q.inbox)) // a cursor may be of a process that has ended
		page, news := q.inbox[from:min(len(q.inbox), from+limit)], q.news
		q.mu.Unlock()
		if len(page) > 0 || over {
			answer(r, fasthttp.StatusOK, map[string]any{"messages": page, "nextCursor": strconv.Itoa(from + len(page))})
			return
		}
		select {
		case <-news:
		case <-timer.C:
			over = true
		}
	}
}

func answer(r *fasthttp.RequestCtx, status int, body any) {
	r.SetStatusCode(status)
	r.SetContentType("application/json")
	_ = json.NewEncoder(r).Encode(body) // into memory
}

// dueHeap has what is due first at its root.
type dueHeap []*message

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].ExecutionTime.Before(h[j].ExecutionTime) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(*message)) }
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	m := (*h)[last]
	*h = (*h)[:last]
	return m
}
