package ingest

import (
	"context"
	"errors"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/twmb/avro"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
)

// A source of the form task+ has task definitions, as POST /schedulers takes them: in JSON, or in Avro as a
// schema registry frames it. The schemas are known, so their numbers in the registry are not looked up.

const (
	taskStart     = `{"name": "start", "type": ["null", "long"], "default": null},`
	taskStructure = `{"type": "record", "namespace": "com.networknt.scheduler", "name": "TaskDefinition", "fields": [
		{"name": "host", "type": "string"},
		{"name": "name", "type": "string"},
		{"name": "action", "type": {"type": "enum", "name": "DefinitionAction",
			"symbols": ["INSERT", "UPDATE", "DELETE"]}},
		{"name": "frequency", "type": ["null", {"type": "record", "name": "TaskFrequency", "fields": [
			{"name": "timeUnit", "type": {"type": "enum", "name": "TimeUnit",
				"symbols": ["MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS"]}},
			{"name": "time", "type": "int"}]}], "default": null},
		{"name": "topic", "type": "string"},` + taskStart + `
		{"name": "data", "type": ["null", {"type": "map", "values": "string"}], "default": null}]}`
)

// taskSchemas are the schema of task definitions, and the older one without a start. A value fits one of them
// alone: nothing of it may be left.
var taskSchemas = []*avro.Schema{
	avro.MustParse(taskStructure), avro.MustParse(strings.Replace(taskStructure, taskStart, "", 1)),
}

// avroFrame is how many bytes a schema registry's serializers put before a value: a zero, and the number of its
// schema.
const avroFrame = 5

// decideTask reads a command that is a task definition. It is as pure as [Decide].
func decideTask(in *api.Intake, c *Command, now postdate.Time) Decision {
	switch {
	case c.Fault != "":
		return Decision{Action: Refuse, Reason: c.Fault}
	case c.Body == nil:
		return refuse(invalid("a record without a value is no task definition: to end a task, send one with the " +
			"action DELETE"))
	}
	body := c.Body
	if len(body) >= avroFrame && body[0] == 0 {
		var err error
		if body, err = fromAvro(body[avroFrame:]); err != nil {
			return refuse(err)
		}
	}
	// Not from when it was sent: a topic that is read for the first time may have records of years.
	o := api.Offer{Channel: c.Channel, Pinned: c.Pinned, Now: now}
	var sent traceContext
	for _, h := range c.Headers {
		sent.take(strings.ToLower(h.Name), h.Value)
	}
	o.Traceparent, o.Tracestate = sent.parent, sent.state
	t, err := in.ReadTask(body, o)
	if err != nil {
		return refuse(err)
	}
	t.Message.Headers = withSource(t.Message.Headers, c.Place)
	return Decision{Action: Define, Message: t.Message, Identity: Given, task: &t}
}

// fromAvro returns the JSON of a task definition in Avro.
func fromAvro(value []byte) ([]byte, error) {
	for _, schema := range taskSchemas {
		var fields map[string]any
		if rest, err := schema.Decode(value, &fields); err != nil || len(rest) > 0 {
			continue
		}
		text, err := json.Marshal(fields, json.Deterministic(true))
		if err != nil { // it is not UTF-8
			return nil, invalid("%w", err)
		}
		return text, nil
	}
	return nil, invalid("it is neither JSON nor a TaskDefinition in Avro with the fields host, name, action, " +
		"frequency, topic, start (or none) and data")
}

// lateMax is how often an UPDATE is tried again because an occurrence of its task is on its way. With a Kafka
// source's pauses that takes about a minute.
const lateMax = 12

// define carries out a task definition. A record that is read again, as after a crash, must not undo a later one.
func (t *Taker) define(ctx context.Context, c *Command) {
	ctx, stop := context.WithTimeout(ctx, t.config.Timeout)
	defer stop()
	task := c.decision.task
	for range replaceRoundsMax {
		old, err := t.config.Messages.Get(ctx, task.Message.Key)
		there := &old
		switch {
		case err != nil && postdate.KindOf(err) == postdate.KindNotFound:
			there = nil
		case err != nil:
			c.again(err)
			return
		case supersedes(&old.Message, c.Place):
			t.finish(c, howRepeated)
			return
		}
		r, err := task.Apply(ctx, t.config.Messages, there, t.config.Now(), t.config.Passed())
		var p *api.Problem
		late := errors.As(err, &p) && p.Type == api.TooLate
		switch kind := postdate.KindOf(err); {
		case err == nil && task.Action != api.DeleteTask:
			t.config.Scheduled(r.Bucket, r.AttemptTime)
			how := howScheduled
			if task.Action == api.UpdateTask {
				how = howReplaced
			}
			t.finish(c, how)
			return
		case err == nil:
			t.finish(c, howCancelled)
			return
		case late && task.Action == api.UpdateTask && c.late == lateMax:
			t.bad(c, words(err)) // an occurrence may always be on its way, and the partition waits
			return
		case p != nil && p.Type == api.NotFound && task.Action == api.DeleteTask && old.Status == postdate.Cancelled:
			how := howRepeated
			if c.late > 0 {
				how = howCancelled
			}
			t.finish(c, how)
			return
		case p != nil && !late, kind == postdate.KindInvalid, kind == postdate.KindTooLarge:
			t.bad(c, words(err))
			return
		case late:
			c.late++
			c.again(err)
			return
		case kind != postdate.KindConflict && kind != postdate.KindExists && kind != postdate.KindNotFound:
			c.again(err)
			return
		}
	}
	c.again(errors.New("others keep changing the task"))
}
