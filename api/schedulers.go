package api

import (
	"context"
	"errors"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// postTask carries out a task definition.
func (s *Server) postTask(ctx *fasthttp.RequestCtx) *Problem {
	var body taskBody
	if p := s.singleBody(ctx, &body, contentTypeJSON); p != nil {
		return p
	}
	c := s.checker(ctx)
	t, p := c.task(&body, s.tenantOf(ctx), s.config.Buckets)
	if p != nil {
		return p
	}
	t.Message.Traceparent, t.Message.Tracestate = s.traceOf(ctx)
	storeCtx := s.calls.begin()
	rounds, pause, until := 0, inFlightLook, time.Now().Add(inFlightWait)
	var late error // of a DELETE that has ended the task: why it waits
	for {
		r, err := s.applyTask(ctx, storeCtx, &t)
		var p *Problem
		switch over := errors.As(err, &p) && p.Type == NotFound; {
		case late != nil && over && r.Withdrawn():
			err = nil
		case late != nil && over:
			err = late // it may have been published, which nobody knows
		case late != nil || rounds > 0:
			err = afterPart(err) // by an earlier round
		}
		tooLate := errors.As(err, &p) && p.Type == TooLate
		switch {
		case err == nil:
			return s.applied(ctx, &t, &r)
		case raced(err) && rounds < replaceRoundsMax:
			rounds++
		case tooLate && err != late && time.Now().Add(pause).Before(until):
			if t.Action == DeleteTask {
				late = err
			}
			time.Sleep(pause)
			pause = min(2*pause, inFlightLookMax)
		default:
			if tooLate {
				s.metrics.of(t.Message.Tenant).tooLate.Inc()
			}
			return s.failed(ctx, "task", err, t.Message.ScheduleID)
		}
	}
}

// applyTask carries out a task definition, unless it is to try again.
func (s *Server) applyTask(ctx *fasthttp.RequestCtx, storeCtx context.Context, t *Task) (postdate.Record, error) {
	old, err := s.config.Messages.Get(storeCtx, t.Message.Key)
	there := &old
	switch {
	case postdate.KindOf(err) == postdate.KindNotFound:
		there = nil
	case err != nil:
		return old, err
	case t.Action != DeleteTask:
		if p := mayUse(identityOf(ctx), old.Channel, ""); p != nil {
			return old, p
		}
	}
	return t.Apply(storeCtx, s.config.Messages, there, s.config.Now(), s.config.Passed())
}

// applied answers a definition that was carried out.
func (s *Server) applied(ctx *fasthttp.RequestCtx, t *Task, r *postdate.Record) *Problem {
	status := fasthttp.StatusOK
	switch t.Action {
	case InsertTask:
		status = fasthttp.StatusCreated
		s.metrics.countScheduled(r.Tenant, r.Channel.Broker())
		s.config.Scheduled(r.Bucket, r.AttemptTime)
	case UpdateTask:
		s.config.Scheduled(r.Bucket, r.AttemptTime)
	case DeleteTask:
		s.metrics.of(r.Tenant).cancelled.Inc()
	}
	return finish(ctx, status, appendTask(begin(ctx), t.name, t.Action, r))
}

// getTasks lists a tenant's tasks, or shows one.
func (s *Server) getTasks(ctx *fasthttp.RequestCtx) *Problem {
	args, p := query(ctx, "host", "name", "unit", "limit", "cursor")
	if p != nil {
		return p
	}
	q := store.ListQuery{Tenant: s.tenantOf(ctx), Status: postdate.Pending, IDPrefix: taskPrefix}
	if args.Has("host") {
		host := string(args.Peek("host"))
		if p := checkHost(&host, q.Tenant); p != nil {
			p.Pointer, p.Parameter = "", "host"
			return p
		}
	}
	unit := string(args.Peek("unit"))
	if _, err := unitOf(unit); args.Has("unit") && err != nil {
		return parameterProblem("unit", err)
	}
	if q.Limit, p = limitOf(args, postdate.ListLimitMax, postdate.ListLimitMax); p != nil {
		return p
	}
	if args.Has("cursor") {
		var err error
		if q.After, err = parseCursor(&q, string(args.Peek("cursor")), s.config.Buckets); err != nil {
			return parameterProblem("cursor", err)
		}
	}
	storeCtx := s.calls.begin()
	tasks := taskList{unit: unit, b: append(begin(ctx), '[')}
	if args.Has("name") {
		id := taskID(string(args.Peek("name")))
		r, err := s.config.Messages.Get(storeCtx, bucket.KeyOf(q.Tenant, id, s.config.Buckets))
		switch {
		case err == nil:
			tasks.add(&r)
		case postdate.KindOf(err) != postdate.KindNotFound:
			return s.failed(ctx, "tasks", err, "")
		}
	} else if next, err := s.listTasks(storeCtx, q, &tasks); err != nil {
		return s.failed(ctx, "tasks", err, "")
	} else if next != nil {
		args.Set("cursor", cursorOf(&q, next))
		ctx.Response.Header.Set("Link", "</schedulers?"+args.String()+`>; rel="next"`)
	}
	return finish(ctx, fasthttp.StatusOK, append(tasks.b, ']'))
}

// A list of tasks is put together from pages of taskPage tasks, which may be large. Most messages are no tasks: it
// ends after taskPagesMax pages, or taskSparseMax that are not full. Large tasks also leave pages that are not full.
const (
	taskPage      = 100
	taskPagesMax  = 100
	taskSparseMax = 10
)

// listTasks adds the tasks that q selects, and returns where the next page begins; nil: there is none.
func (s *Server) listTasks(ctx context.Context, q store.ListQuery, to *taskList) (*store.ListPosition, error) {
	most := q.Limit
	q.Limit = taskPage
	for pages, sparse := 0, 0; pages < taskPagesMax && sparse < taskSparseMax; pages++ {
		page, err := s.config.Messages.List(ctx, q)
		if err != nil {
			return nil, err
		}
		if len(page.Records) < q.Limit {
			sparse++
		}
		for i := range page.Records {
			r := &page.Records[i]
			if to.add(r); to.count == most || len(to.b) > listBytesMax {
				at := store.ListPosition{ExecutionTime: r.ExecutionTime, Bucket: r.Bucket, ScheduleID: r.ScheduleID}
				return &at, nil
			}
		}
		if q.After = page.Next; q.After == nil {
			return nil, nil
		}
	}
	return q.After, nil
}

// taskList is an answer that grows.
type taskList struct {
	unit  string // only tasks with this one; "": all
	b     []byte
	count int
}

// add adds a message, if it is a task that is wanted.
func (l *taskList) add(r *postdate.Record) {
	name, is := taskNameOf(r.ScheduleID)
	if !is || r.Recurrence == nil || r.Status.Final() {
		return
	}
	if unit, _ := shownUnit(r); l.unit != "" && unit != l.unit {
		return
	}
	if l.count > 0 {
		l.b = append(l.b, ',')
	}
	action := InsertTask
	if r.Changes > 0 {
		action = UpdateTask
	}
	l.b = appendTask(l.b, name, action, r)
	l.count++
}
