package api

import (
	"bytes"
	"context"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

const contentTypeLines = "application/x-ndjson"

// batch collects the outcome of each item, in order.
type batch struct {
	checker
	tenant      string
	buckets     int
	key         string // the Idempotency-Key; "": none
	traceparent string // of the request
	tracestate  string // likewise
	replayed    func(m *postdate.Message, expiring bool) (scheduled, bool)

	items    []batchItem
	messages []postdate.Message // those to insert
}

// batchItem is one item. It is decided, with its problem or answer, or it waits for
// its message to be inserted.
type batchItem struct {
	id      string
	problem *Problem
	answer  scheduled
	created bool
	message int // index in messages; -1: it is decided
}

func (i *batchItem) append(b []byte) []byte {
	if i.problem != nil {
		return appendResult(b, i.id, 0, i.problem)
	}
	b = append(i.answer.append(b), `,"created":`...)
	return append(strconv.AppendBool(b, i.created), '}')
}

// postBatch schedules many messages. Each succeeds or fails alone.
func (s *Server) postBatch(ctx *fasthttp.RequestCtx) *Problem {
	body, key, p := s.postedBody(ctx, postdate.BatchBytesMax, contentTypeJSON, contentTypeLines)
	if p != nil {
		return p
	}
	storeCtx := s.calls.begin()
	t := &batch{
		checker: s.checker(ctx), tenant: s.tenantOf(ctx), buckets: s.config.Buckets, key: key,
		replayed: func(m *postdate.Message, expiring bool) (scheduled, bool) {
			return s.replayed(storeCtx, m, expiring)
		},
	}
	t.traceparent, t.tracestate = s.traceOf(ctx)
	parse := eachOfArray
	if isOneOf(ctx.Request.Header.ContentType(), []string{contentTypeLines}) {
		parse = eachLine
	}
	if p := parse(body, t.add); p != nil {
		return p
	}
	if key != "" {
		if p := s.noteKey(ctx, storeCtx, key, body); p != nil {
			return p
		}
	}
	s.insertBatch(ctx, storeCtx, t)
	b := append(begin(ctx), `{"results":[`...)
	for i := range t.items {
		if i > 0 {
			b = append(b, ',')
		}
		b = t.items[i].append(b)
	}
	return finish(ctx, fasthttp.StatusOK, append(b, `]}`...))
}

// add checks one item. A p that is not nil says why the item could not be read.
func (t *batch) add(body *messageBody, p *Problem) *Problem {
	if len(t.items) == postdate.BatchItemsMax {
		return &Problem{Type: TooLarge, Detail: "the batch has more than " + countOf(postdate.BatchItemsMax, "item") +
			": split it; nothing of it was done"}
	}
	item := batchItem{message: -1, problem: p}
	if body.ScheduleID != nil {
		item.id = shownID(*body.ScheduleID)
	}
	if p == nil {
		if t.key != "" && body.ScheduleID == nil {
			body.ScheduleID = idOfKey(t.key, len(t.items))
		}
		m := postdate.Message{Traceparent: t.traceparent, Tracestate: t.tracestate}
		var expiring bool
		item.problem, expiring = t.named(body, t.tenant, t.buckets, &m)
		if first, ok := t.replayed(&m, expiring); ok {
			item.problem, item.answer = nil, first
		} else if item.problem == nil {
			item.id, item.message = m.ScheduleID, len(t.messages)
			t.messages = append(t.messages, m)
		}
	}
	t.items = append(t.items, item)
	return nil
}

// insertBatch inserts the batch's messages in one call, and decides the items.
func (s *Server) insertBatch(ctx *fasthttp.RequestCtx, storeCtx context.Context, t *batch) {
	if len(t.messages) == 0 {
		return
	}
	results := s.config.Messages.Insert(storeCtx, t.messages)
	var logged bool
	for i := range t.items {
		item := &t.items[i]
		if item.message < 0 {
			continue
		}
		result, m := results[item.message], &t.messages[item.message]
		if result.Err == nil {
			item.answer, item.created = s.noteInsert(storeCtx, m, result), result.Created
			continue
		}
		item.problem = s.failedItem(ctx, result, m.ScheduleID, &logged)
	}
}

// failedItem returns an item's Problem. It logs the first serious error of a batch only.
func (s *Server) failedItem(ctx *fasthttp.RequestCtx, result store.Inserted, id string, logged *bool) *Problem {
	if *logged {
		p, _ := storeProblem(result.Err, id)
		return p
	}
	p, serious := storeProblem(result.Err, id)
	if serious {
		*logged = true
		s.config.Log.With(idsOf(ctx)...).Error("api: the store failed", "doing", "insert batch", "scheduleId", id,
			"error", result.Err)
	}
	return p
}

// eachOfArray reads a JSON array item by item. An item that is well-formed but not a
// message fails alone, with the Problem that add gets. If the array itself is broken,
// the whole batch fails, because no item can be told from the next.
func eachOfArray(body []byte, add func(*messageBody, *Problem) *Problem) *Problem {
	at := skipSpace(body, 0)
	if at == len(body) {
		return &Problem{Type: MalformedJSON, Offset: -1, Detail: "the body is empty: send a JSON array of messages"}
	}
	if body[at] != '[' {
		return &Problem{Type: InvalidField, Detail: "a JSON array of messages was expected: " +
			"for one message a line, send it with Content-Type: " + contentTypeLines}
	}
	at = skipSpace(body, at+1)
	if at < len(body) && body[at] == ']' {
		return nothingAfter(body, at+1)
	}
	buffer := bytes.NewBuffer(nil)
	dec := jsontext.NewDecoder(buffer)
	for {
		var item messageBody
		*buffer = *bytes.NewBuffer(body[at:])
		dec.Reset(buffer)
		problem := decodeNext(dec, &item)
		length := int(dec.InputOffset())
		if problem != nil {
			problem.shift(at)
			var broken *Problem
			if length, broken = lengthOfValue(body[at:]); broken != nil {
				broken.shift(at)
				return broken
			}
		}
		if p := add(&item, problem); p != nil {
			return p
		}
		at = skipSpace(body, at+length)
		switch {
		case at < len(body) && body[at] == ',':
			at = skipSpace(body, at+1)
		case at < len(body) && body[at] == ']':
			return nothingAfter(body, at+1)
		default:
			return brokenArray(body, at)
		}
	}
}

// lengthOfValue returns the length of the JSON value at the beginning of b. The value
// may have duplicate names and invalid UTF-8.
func lengthOfValue(b []byte) (int, *Problem) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	err := dec.SkipValue()
	return int(dec.InputOffset()), jsonProblem(err, nil)
}

func nothingAfter(body []byte, at int) *Problem {
	if at = skipSpace(body, at); at < len(body) {
		return &Problem{Type: MalformedJSON, Offset: int64(at), Detail: "something stands after the array"}
	}
	return nil
}

func brokenArray(body []byte, at int) *Problem {
	p := &Problem{Type: MalformedJSON, Offset: int64(at), Detail: "a comma or the array's end was expected"}
	if at == len(body) {
		p.Detail = "the array ends too early"
	}
	return p
}

// eachLine reads one JSON value per line. A bad line fails alone. Empty lines are skipped.
func eachLine(body []byte, add func(*messageBody, *Problem) *Problem) *Problem {
	for at := 0; at < len(body); {
		line := body[at:]
		next := len(body)
		if end := bytes.IndexByte(line, '\n'); end >= 0 {
			line, next = line[:end], at+end+1
		}
		if skipSpace(line, 0) < len(line) {
			var item messageBody
			problem := decodeBody(line, &item)
			if problem != nil {
				problem.shift(at)
			}
			if p := add(&item, problem); p != nil {
				return p
			}
		}
		at = next
	}
	return nil
}

// skipSpace returns the index of the first byte, from at on, that is not JSON whitespace.
func skipSpace(b []byte, at int) int {
	for at < len(b) && (b[at] == ' ' || b[at] == '\n' || b[at] == '\r' || b[at] == '\t') {
		at++
	}
	return at
}

// shownID returns a client's schedule id as an answer shows it: whole if it is short
// enough to be valid, else clipped.
func shownID(id string) string {
	if len(id) <= postdate.ScheduleIDBytesMax {
		return id
	}
	return clip(id)
}
