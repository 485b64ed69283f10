package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strings"
)

// TaskAction says what a [Task] asks for and, in an answer, what made it what it is.
type TaskAction string

// The actions.
const (
	InsertTask TaskAction = "INSERT" // make it; the error is a problem of type Exists if it is there
	UpdateTask TaskAction = "UPDATE" // change it, from the next occurrence on
	DeleteTask TaskAction = "DELETE" // cancel it
)

// Task is a series in the words of a task scheduler.
type Task struct {
	Host      string         `json:"host"` // the tenant
	Name      string         `json:"name"`
	Action    TaskAction     `json:"action"`
	Frequency *TaskFrequency `json:"frequency,omitempty"` // of a task that recurs by cron, answers have none
	Topic     string         `json:"topic,omitempty"`     // of Kafka, or another channel

	// Start is when it first begins, in milliseconds since 1970. 0: with the next whole unit or, in an
	// UpdateTask, as before.
	Start int64           `json:"start,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"` // what is sent

	ScheduleID string `json:"scheduleId,omitempty"` // only in answers: of its series
}

// TaskFrequency is the time between two occurrences of a [Task].
type TaskFrequency struct {
	TimeUnit string `json:"timeUnit"` // MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS
	Time     int64  `json:"time"`
}

// DefineTask inserts, updates or deletes a task. Nil is a guarantee: after a DeleteTask, nothing of the task is
// delivered any more. If an occurrence is on its way, the server waits up to a second for that; then the error is
// a problem of type TooLate, and a DeleteTask has ended the task all the same.
func (c *Client) DefineTask(ctx context.Context, t Task) (is Task, err error) {
	t.ScheduleID = ""
	body, err := json.Marshal(t)
	if err != nil {
		return is, err
	}
	_, err = c.do(ctx, Call{Method: http.MethodPost, Path: "/schedulers", Body: body}, &is)
	return is, err
}

// Tasks reads the tasks of the client's tenant that are not deleted, by when they first begin. A name or a unit
// that is not empty selects. It ends with the first error.
func (c *Client) Tasks(ctx context.Context, name, unit string) iter.Seq2[Task, error] {
	query := url.Values{}
	if name != "" {
		query.Set("name", name)
	}
	if unit != "" {
		query.Set("unit", unit)
	}
	return func(yield func(Task, error) bool) {
		for path, more := "/schedulers?"+query.Encode(), true; more; {
			var page []Task
			a, err := c.do(ctx, Call{Method: http.MethodGet, Path: path}, &page)
			if err != nil {
				yield(Task{}, err)
				return
			}
			for _, t := range page {
				if !yield(t, nil) {
					return
				}
			}
			path, more = strings.CutSuffix(strings.TrimPrefix(a.Header.Get("Link"), "<"), `>; rel="next"`)
		}
	}
}
