package api

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/recurrence"
	"github.com/postdate/postdate/store"
)

// This file says what task definitions mean. A task is a series in the words of a task scheduler: its host is
// the tenant, and its name gives the schedule id. docs/migrate-from-light-scheduler.md describes them.

// taskBody is a task definition, as on the wire.
type taskBody struct {
	Host      *string        `json:"host"`
	Name      *string        `json:"name"`
	Action    *string        `json:"action"`
	Frequency *frequencyBody `json:"frequency"`
	Topic     *string        `json:"topic"`
	Start     jsontext.Value `json:"start"`
	Data      jsontext.Value `json:"data"`

	ScheduleID *string `json:"scheduleId"` // answers have it, and may be sent back
}

type frequencyBody struct {
	TimeUnit *string `json:"timeUnit"`
	Time     *int64  `json:"time"`
}

var (
	taskFields      = fieldsOf(reflect.TypeFor[taskBody]())
	frequencyFields = fieldsOf(reflect.TypeFor[frequencyBody]())
)

// TaskAction is what a task definition asks for.
type TaskAction string

// The actions.
const (
	InsertTask TaskAction = "INSERT"
	UpdateTask TaskAction = "UPDATE"
	DeleteTask TaskAction = "DELETE"
)

// taskUnits are the units of frequencies, the longest first.
var taskUnits = []struct {
	name   string
	length time.Duration
}{
	{"DAYS", 24 * time.Hour}, {"HOURS", time.Hour}, {"MINUTES", time.Minute}, {"SECONDS", time.Second},
	{"MILLISECONDS", time.Millisecond},
}

// Headers of a task's messages.
const (
	headerTaskHost = "task-host"
	headerTaskName = "task-name"
	headerTaskUnit = "task-unit" // the unit of its frequency
)

// taskPrefix begins the schedule id of a task.
const taskPrefix = "task:"

// taskID is the schedule id of a task: its name, in the form that a URL's query has it, with = for %.
func taskID(name string) string {
	return taskPrefix + strings.ReplaceAll(url.QueryEscape(name), "%", "=")
}

// taskNameOf is the name of the task with an id. ok is false if no task has that id.
func taskNameOf(id string) (name string, ok bool) {
	escaped, is := strings.CutPrefix(id, taskPrefix)
	name, err := url.QueryUnescape(strings.ReplaceAll(escaped, "=", "%"))
	return name, is && err == nil && taskID(name) == id && isTaskName(name)
}

// isTaskName says whether a task may have a name, if that is not too long.
func isTaskName(name string) bool {
	return name != "" && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// Task is a task definition that was read.
type Task struct {
	Action  TaskAction
	Message postdate.Message // its series; of a DELETE only the key
	host    string
	name    string
	starts  bool // the definition says when it starts
}

// ReadTask reads a task definition in JSON. Of o it takes the channel, the trace context and the time.
func (in *Intake) ReadTask(body []byte, o Offer) (Task, error) {
	var b taskBody
	if p := decodeBody(body, &b); p != nil {
		return Task{}, p
	}
	if o.Channel != "" && (o.Pinned || b.Topic == nil || *b.Topic == "") {
		b.Topic = &o.Channel
	}
	c := checker{now: o.Now, payloadBytesMax: in.PayloadBytesMax, checkChannel: in.CheckChannel}
	t, p := c.task(&b, in.Tenant, in.Buckets)
	if p != nil {
		return t, p
	}
	t.Message.Traceparent, t.Message.Tracestate = o.trace()
	return t, nil
}

// task checks a definition that comes from a tenant. Of a DELETE, only the host and the name count.
func (c *checker) task(b *taskBody, tenant string, buckets int) (t Task, p *Problem) {
	if p := checkHost(b.Host, tenant); p != nil {
		return t, p
	}
	if b.Name == nil || *b.Name == "" {
		return t, fieldProblem("/name", invalid("name is missing: give the task a name"))
	}
	t.host, t.name = tenant, *b.Name
	id := taskID(t.name)
	switch {
	case !isTaskName(t.name):
		return t, fieldProblem("/name", invalid("name %q has control characters: leave them out", clip(t.name)))
	case postdate.CheckScheduleID(id) != nil:
		return t, fieldProblem("/name", invalid("name %q is too long: with three characters for each byte that is no "+
			"letter, digit or - _ . ~ it may have %d", clip(t.name), postdate.ScheduleIDBytesMax-len(taskPrefix)))
	}
	if b.ScheduleID != nil && *b.ScheduleID != id {
		return t, fieldProblem("/scheduleId", invalid("scheduleId is %q, and that of the task is %q: leave it out",
			clip(*b.ScheduleID), id))
	}
	t.Message.Key = bucket.KeyOf(tenant, id, buckets)
	if b.Action == nil {
		return t, fieldProblem("/action", invalid("action is missing: give INSERT, UPDATE or DELETE"))
	}
	switch t.Action = TaskAction(*b.Action); t.Action {
	case DeleteTask:
		return t, nil
	case InsertTask, UpdateTask:
		p = c.taskMessage(b, &t)
		return t, p
	}
	return t, fieldProblem("/action", invalid("action is %q: it is INSERT, UPDATE or DELETE", clip(*b.Action)))
}

// checkHost says why a tenant may not define a host's tasks.
func checkHost(host *string, tenant string) *Problem {
	switch {
	case host == nil || *host == "":
		return fieldProblem("/host", invalid("host is missing: give the tenant, which is %s", tenant))
	case *host != tenant:
		return &Problem{Type: Forbidden, Pointer: "/host", Detail: "the host is " + clip(*host) + ", and this comes " +
			"from the tenant " + tenant + ": give that as the host, or send it as the tenant " + clip(*host)}
	}
	return nil
}

// taskMessage makes the series of a definition.
func (c *checker) taskMessage(b *taskBody, t *Task) *Problem {
	every, unit, p := b.Frequency.read()
	if p != nil {
		return p
	}
	anchor := c.now + 1
	if rest := anchor % postdate.Time(unit.Milliseconds()); rest != 0 {
		anchor += postdate.Time(unit.Milliseconds()) - rest // it begins at the next whole unit, in UTC
	}
	if len(b.Start) > 0 && b.Start.Kind() != 'n' {
		if anchor, p = readStart(b.Start); p != nil {
			return p
		}
		t.starts = true
	}
	if b.Topic == nil || *b.Topic == "" {
		return fieldProblem("/topic", invalid("topic is missing: give the Kafka topic to which the task goes, "+
			"or another channel, like rabbitmq:orders"))
	}
	channel, data := *b.Topic, b.Data
	if !strings.Contains(channel, ":") { // no topic of Kafka has a colon in its name
		channel = "kafka:" + channel
	}
	if len(data) == 0 {
		data = jsontext.Value("null")
	}
	length, from := every.String(), anchor.String()
	p, _ = c.message(&messageBody{
		Channel: channel, Payload: data, Key: t.name, Recurrence: &recurrenceBody{Every: &length, Anchor: &from},
		Headers: headerList{{Name: headerTaskHost, Value: t.host}, {Name: headerTaskName, Value: t.name},
			{Name: headerTaskUnit, Value: *b.Frequency.TimeUnit}},
	}, &t.Message)
	if p != nil {
		p.Pointer = strings.NewReplacer("/channel", "/topic", "/payload", "/data", "/headers/task-name", "/name",
			"/key", "/name", "/recurrence", "/start").Replace(p.Pointer)
		p.Detail = strings.Replace(p.Detail, "payload", "data", 1)
	}
	return p
}

// read returns the time between two occurrences, and its unit.
func (f *frequencyBody) read() (every, unit time.Duration, p *Problem) {
	if f == nil || f.TimeUnit == nil || f.Time == nil {
		return 0, 0, fieldProblem("/frequency", invalid("frequency, its timeUnit or its time is missing: write it "+
			`like {"timeUnit": "SECONDS", "time": 10}`))
	}
	unit, err := unitOf(*f.TimeUnit)
	if err != nil {
		return 0, 0, fieldProblem("/frequency/timeUnit", err)
	}
	if n := *f.Time; n < 1 || n > int64(postdate.DelayMax/unit) || time.Duration(n)*unit < postdate.EveryMin {
		return 0, 0, fieldProblem("/frequency/time", invalid("time is %d: a frequency is at least %s and at most "+
			"%d days", n, postdate.EveryMin, daysOf(postdate.DelayMax)))
	}
	return time.Duration(*f.Time) * unit, unit, nil
}

// unitOf returns the length of a unit.
func unitOf(name string) (time.Duration, error) {
	for _, u := range taskUnits {
		if u.name == name {
			return u.length, nil
		}
	}
	return 0, invalid("the unit %q is not known: it is MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS", clip(name))
}

// readStart reads a time in milliseconds since 1970, or as text.
func readStart(v jsontext.Value) (at postdate.Time, p *Problem) {
	err := invalid("start is neither milliseconds since 1970, between %d and %d, nor a time like "+
		`"2027-01-31T09:30:00Z"`, int64(postdate.EarliestTime), int64(postdate.LatestTime))
	switch v.Kind() {
	case '0':
		ms, bad := strconv.ParseInt(string(v), 10, 64)
		if at = postdate.Time(ms); bad == nil && at >= postdate.EarliestTime && at <= postdate.LatestTime {
			err = nil
		}
	case '"':
		text, bad := jsontext.AppendUnquote(nil, v)
		if bad == nil {
			at, err = postdate.ParseTime(string(text))
		}
	}
	if err != nil {
		return 0, fieldProblem("/start", err)
	}
	return at, nil
}

// TaskMessages is the part of a store that task definitions need.
type TaskMessages interface {
	Insert(ctx context.Context, messages []postdate.Message) []store.Inserted
	Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error)
	Forget(ctx context.Context, key postdate.Key, ifVersion uint64) error
	Canceller
}

// Apply carries the task out, and returns its series; of a DELETE or with an error, as it was. old is what has its
// id; nil: nothing. passed is as [Config.Passed] has it. The error is a Problem of type TooLate while an occurrence
// is on its way; a DELETE has ended the task all the same. It is KindConflict, KindExists or KindNotFound if
// somebody else was quicker: then read old again.
func (t *Task) Apply(ctx context.Context, to TaskMessages, old *postdate.Record,
	now, passed postdate.Time) (r postdate.Record, err error) {
	if old != nil {
		r = *old
	}
	if t.Action == DeleteTask && old != nil && old.Status == postdate.Cancelled {
		// An occurrence of it may be left that is tried again. Later ones are another task's, of the same name.
		if err := cancelRetried(ctx, to, old.Key, old.Series.Passed(), now); err != nil {
			return r, cancelError(old.ScheduleID, store.Cancelled{State: old.State, Err: err})
		}
	}
	if p := t.refuse(old); p != nil {
		return r, p
	}
	switch t.Action {
	case DeleteTask:
		return r, t.cancel(ctx, to, now)
	case UpdateTask:
		return t.update(ctx, to, old, passed)
	}
	m := t.Message
	if old != nil { // it is over, and its id is used again at once
		if err := recurrence.Begin(&m, max(passed, old.Series.Passed())); err != nil {
			return r, err
		}
		if err := to.Forget(ctx, old.Key, old.Version); err != nil {
			return r, err
		}
	}
	result := to.Insert(ctx, []postdate.Message{m})[0]
	if result.Err == nil && !result.Created {
		result.Err = store.ErrExists(m.Key, result.Status)
	}
	if old != nil {
		result.Err = afterPart(result.Err)
	}
	return postdate.NewRecord(m, 0), result.Err
}

// afterPart hides the kind of an error that would say that nothing was done: a part may be.
func afterPart(err error) error {
	switch postdate.KindOf(err) {
	case postdate.KindUnavailable, postdate.KindFenced, postdate.KindFull, postdate.KindLimited, postdate.KindTooLarge:
		return postdate.E(postdate.KindUnknown, "a part of it may be done: %w", err)
	}
	return err
}

// refuse says why the task cannot be carried out: an INSERT of one that is there already, another action of one
// that is not, and a change of one that is about to end.
func (t *Task) refuse(old *postdate.Record) *Problem {
	there := old != nil && !old.Status.Final()
	is := there && old.Recurrence != nil
	switch {
	case !is && t.Action == UpdateTask:
		return &Problem{Type: NotFound, Detail: fmt.Sprintf("the host %s has no task %q: INSERT it", t.host,
			clip(t.name))}
	case !is && t.Action == DeleteTask:
		return &Problem{Type: NotFound, Detail: fmt.Sprintf("the host %s has no task %q: it is deleted already, or "+
			"never was there", t.host, clip(t.name))}
	case is && old.Ending && t.Action != DeleteTask:
		return tooLate(old.ScheduleID, old.State)
	case is && t.Action == InsertTask:
		return &Problem{Type: Exists, ScheduleID: old.ScheduleID, Detail: fmt.Sprintf("the host %s has a task %q "+
			"already, perhaps by an earlier try of this request: UPDATE it, or DELETE it first", t.host, clip(t.name))}
	case there && !is:
		return &Problem{Type: Exists, ScheduleID: old.ScheduleID, Detail: "the scheduleId is taken by a message that " +
			"does not recur: cancel that, or choose another name"}
	}
	return nil
}

// cancel cancels the task's series, with what is left of its occurrences.
func (t *Task) cancel(ctx context.Context, from Canceller, now postdate.Time) error {
	result := Cancel(ctx, from, []postdate.Key{t.Message.Key}, now)[0]
	if result.State.Status.Final() && result.State.Status != postdate.Cancelled {
		return store.ErrChanged(t.Message.Key) // it has ended by itself
	}
	return cancelError(t.Message.ScheduleID, result)
}

func (t *Task) update(ctx context.Context, to TaskMessages, old *postdate.Record,
	passed postdate.Time) (postdate.Record, error) {
	next, err := t.updated(old, passed)
	if err != nil {
		return next, err
	}
	next.Original = old.Origin()
	present, err := to.Replace(ctx, next, *old)
	switch late := postdate.KindOf(err) == postdate.KindTooLate; {
	case late && present.Status.Final():
		err = store.ErrChanged(next.Key)
	case late:
		err = tooLate(next.ScheduleID, present.State)
	}
	return next, err
}

// updated is what becomes of the task's series. If the definition has no start, that stays, and so does what no
// definition speaks of, like a pause.
func (t *Task) updated(old *postdate.Record, passed postdate.Time) (postdate.Record, error) {
	m, rule := old.Message, *old.Recurrence
	rule.Every, rule.Start, rule.Cron, rule.Timezone, rule.Gap, rule.Overlap =
		t.Message.Recurrence.Every, 0, "", "", 0, 0
	if t.starts || rule.Anchor == 0 {
		rule.Anchor = t.Message.Recurrence.Anchor
	}
	m.Channel, m.PartitionKey = t.Message.Channel, t.Message.PartitionKey
	m.Headers = slices.Clone(t.Message.Headers)
	for _, h := range old.Headers { // where it came from, unless this comes from there, too
		again := func(o postdate.Header) bool { return o.Name == h.Name }
		if strings.HasPrefix(h.Name, reserved) && !slices.ContainsFunc(m.Headers, again) {
			m.Headers = append(m.Headers, h)
		}
	}
	postdate.SortHeaders(m.Headers)
	m.Payload, m.Encoding, m.ContentType = t.Message.Payload, t.Message.Encoding, t.Message.ContentType
	m.Traceparent, m.Tracestate, m.Recurrence = t.Message.Traceparent, t.Message.Tracestate, &rule
	m.Digest = postdate.DigestOf(&m, "")
	next, err := recurrence.Change(old, m, old.Paused, passed)
	if err != nil {
		return next, fieldProblem("/frequency", err)
	}
	return next, nil
}

// appendTask appends the definition of a task. Of one that was deleted that is not what it said: who deletes it
// need not be allowed to read it.
func appendTask(b []byte, name string, action TaskAction, r *postdate.Record) []byte {
	b = append(b, `{"host":`...)
	b = appendText(b, r.Tenant)
	b = appendMember(b, "name", name)
	b = appendMember(b, "action", string(action))
	b = appendMember(b, "scheduleId", r.ScheduleID)
	if action == DeleteTask {
		return append(b, '}')
	}
	if unit, length := shownUnit(r); length != 0 {
		b = append(b, `,"frequency":{"time":`...)
		b = strconv.AppendInt(b, int64(r.Recurrence.Every/length), 10)
		b = append(appendMember(b, "timeUnit", unit), '}')
		b = append(b, `,"start":`...)
		b = strconv.AppendInt(b, int64(cmp.Or(r.Recurrence.Anchor, r.Recurrence.Start, r.CreatedAt)), 10)
	}
	b = appendMember(b, "topic", strings.TrimPrefix(string(r.Channel), "kafka:"))
	b = append(b, `,"data":`...)
	if r.Encoding == postdate.EncodingJSON {
		b = append(b, r.Payload...)
	} else {
		b = appendText(b, r.Payload)
	}
	return append(b, '}')
}

// shownUnit is the unit in which a task's frequency is shown: the one in which it was given, if it still is a
// multiple of that, or else the longest.
func shownUnit(r *postdate.Record) (name string, length time.Duration) {
	every := r.Recurrence.Every
	if every == 0 {
		return "", 0 // it recurs by cron
	}
	for _, h := range r.Headers {
		if length, err := unitOf(h.Value); h.Name == headerTaskUnit && err == nil && every%length == 0 {
			return h.Value, length
		}
	}
	for _, u := range taskUnits {
		if name, length = u.name, u.length; every%length == 0 {
			break
		}
	}
	return name, length
}
