package clients

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/client"
)

// player plays the scenario with the Go client, which has no clock that could be set.
type player struct {
	t       *testing.T
	harness *harness
	saved   map[string]string
}

// play does a step, and returns what is not as it is wanted.
func (p *player) play(s step) error {
	server, with := p.harness.url, fill(s.With, p.saved)
	if s.Fault != nil {
		server = p.harness.control + "/node"
		if err := p.control("/fault", s.Fault); err != nil {
			return err
		}
	}
	config := client.Config{Servers: []string{server}, APIKey: adminKey}
	if s.Key != "" {
		config.APIKey = fill(s.Key, p.saved).(string)
	}
	if s.Retry != nil && !*s.Retry {
		config.RetryFor = -1
	}
	if s.Timeout != "" {
		config.AnswerTimeout = duration(s.Timeout)
	}
	c, err := client.New(config)
	if err != nil {
		return err
	}
	defer c.Close()
	limit := time.Minute
	if s.Do == "flood" {
		limit = 2 * time.Minute
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), limit)
	defer cancel()
	arguments, _ := with.(map[string]any)
	got, err := p.do(ctx, c, s.Do, arguments)
	answer, err := judge(s, got, err)
	if err != nil {
		return err
	}
	if miss := mismatch(fill(s.Want, p.saved), answer); s.Want != nil && miss != "" {
		text, _ := json.Marshal(answer) // it came from JSON
		return fmt.Errorf("%s, in %s", miss, text)
	}
	for name, pointer := range s.Save {
		value, ok := find(answer, pointer).(string)
		if !ok {
			return fmt.Errorf("there is no text at %s to save", pointer)
		}
		p.saved[name] = value
	}
	return nil
}

// judge returns what the step compares: the answer, or the problem that was wanted, in the form of JSON.
func judge(s step, got any, err error) (any, error) {
	var problem *client.Problem
	var lost *client.NoAnswer
	met := ""
	switch {
	case errors.As(err, &lost):
		met = "no-answer"
	case errors.As(err, &problem):
		met = strings.TrimPrefix(string(problem.Type), "urn:postdate:problem:")
		text, _ := json.Marshal(problem) // strings and numbers
		object := map[string]any{"requestId": problem.RequestID}
		if err := json.Unmarshal(text, &object); err != nil {
			return nil, err
		}
		got = object
	case err != nil:
		return nil, err
	}
	if met != s.Problem {
		return nil, fmt.Errorf("the problem is %q, want %q: %w", met, s.Problem, err)
	}
	if s.MayBeDone != nil && client.MayBeDone(err) != *s.MayBeDone {
		return nil, fmt.Errorf("MayBeDone is %t: %w", client.MayBeDone(err), err)
	}
	text, err := json.Marshal(got)
	if err != nil {
		return nil, err
	}
	var answer any
	return answer, json.Unmarshal(text, &answer)
}

// control asks the harness for something.
func (p *player) control(path string, body []byte) error {
	res, err := http.Post(p.harness.control+path, "application/json", strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the harness answers %s", res.Status)
	}
	return nil
}

type calls map[string]func(context.Context, *client.Client, map[string]any) (any, error)

// do makes the call of a step.
func (p *player) do(ctx context.Context, c *client.Client, do string, with map[string]any) (any, error) {
	switch do {
	case "kill":
		return nil, p.control("/kill", nil)
	case "start":
		return nil, p.control("/start?after="+text(with, "after"), nil)
	case "clock":
		return nil, nil
	case "flood":
		return nil, p.flood(ctx, c, with)
	}
	for _, some := range []calls{ofMessages, ofInboxes, ofOperations} {
		if call := some[do]; call != nil {
			return call(ctx, c, with)
		}
	}
	return nil, errors.New("the player does not know this step")
}

var ofMessages = calls{
	"scheduleMessage": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		return c.Schedule(ctx, messageOf(with))
	},
	"scheduleBatch": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		var messages []client.Message
		for _, m := range with["messages"].([]any) {
			messages = append(messages, messageOf(m.(map[string]any)))
		}
		results, err := c.ScheduleAll(ctx, messages)
		return map[string]any{"results": results}, err
	},
	"putMessage": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		return c.Put(ctx, messageOf(with["message"].(map[string]any)), conditions(with)...)
	},
	"patchMessage": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		given := with["change"].(map[string]any)
		m := messageOf(given)
		change := client.Change{ExecutionTime: m.ExecutionTime, Delay: m.Delay, Payload: m.Payload, ContentType: m.ContentType,
			Channel: m.Channel, Labels: m.Labels, Recurrence: m.Recurrence}
		if _, ok := given["failureChannel"]; ok {
			change.FailureChannel = &m.FailureChannel
		}
		return c.Patch(ctx, text(with, "scheduleId"), change, conditions(with)...)
	},
	"getMessage": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		r, err := c.Get(ctx, text(with, "scheduleId"))
		return withPayload(r, r.Payload, r.ContentType), err
	},
	"listMessages": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		f := client.Filter{Channel: text(with, "channel"), Status: client.Status(text(with, "status")),
			Label: text(with, "label"), IDPrefix: text(with, "idPrefix"),
			From: instant(with, "from"), To: instant(with, "to"), PageSize: number(with, "pageSize")}
		if recurring, given := with["recurring"].(bool); given {
			f.Recurring = &recurring
		}
		return listed("messages", c.List(ctx, f), func(r client.Record) any {
			return withPayload(r, r.Payload, r.ContentType)
		})
	},
	"cancelMessage": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		return nil, c.Cancel(ctx, text(with, "scheduleId"))
	},
	"cancelMessages": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		results, err := c.CancelAll(ctx, texts(with, "scheduleIds"))
		return map[string]any{"results": results}, err
	},
	"redriveMessages": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		results, err := c.Redrive(ctx, texts(with, "scheduleIds")...)
		return map[string]any{"results": results}, err
	},
	"purgeMessages": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		results, err := c.Purge(ctx, texts(with, "scheduleIds")...)
		return map[string]any{"results": results}, err
	},
	"cancelWhere":  job((*client.Client).CancelWhere),
	"redriveWhere": job((*client.Client).RedriveWhere),
	"purgeWhere":   job((*client.Client).PurgeWhere),
	"getJob": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		return c.Job(ctx, text(with, "id"))
	},
	"triggerMessage": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		return c.Trigger(ctx, text(with, "scheduleId"), conditions(with)...)
	},
	"pauseSeries": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		return nil, c.PauseSeries(ctx, text(with, "scheduleId"))
	},
	"resumeSeries": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		return nil, c.ResumeSeries(ctx, text(with, "scheduleId"))
	},
	"previewRecurrence": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		occurrences, err := c.Preview(ctx, *messageOf(with).Recurrence, instant(with, "from"), number(with, "count"))
		return map[string]any{"occurrences": occurrences}, err
	},
	"getUpcoming": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		slots, err := c.Upcoming(ctx, client.UpcomingRange{From: instant(with, "from"), To: instant(with, "to"),
			Step: duration(text(with, "step")), Channel: text(with, "channel")})
		return map[string]any{"slots": slots}, err
	},
	"getFailures": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		return c.Failures(ctx, client.FailureFilter{Channel: text(with, "channel"), From: instant(with, "from"),
			To: instant(with, "to")})
	},
	"defineTask": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		return c.DefineTask(ctx, read[client.Task](with))
	},
	"listTasks": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		return listed("tasks", c.Tasks(ctx, text(with, "name"), text(with, "unit")), func(t client.Task) any { return t })
	},
}

// job returns a call that starts a job and waits until it is done.
func job(start func(*client.Client, context.Context, client.JobFilter) (string, error)) func(context.Context,
	*client.Client, map[string]any) (any, error) {
	return func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		id, err := start(c, ctx, read[client.JobFilter](with["filter"]))
		if err != nil {
			return nil, err
		}
		return c.WaitJob(ctx, id, nil)
	}
}

var ofInboxes = calls{
	"readInbox": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		page, err := c.ReadInbox(ctx, text(with, "inbox"), client.InboxRead{After: text(with, "after"), Wait: duration(text(with, "wait"))})
		var messages []any
		for _, m := range page.Messages {
			messages = append(messages, withPayload(m, m.Payload, m.ContentType))
		}
		return map[string]any{"messages": messages, "nextCursor": page.NextCursor}, err
	},
	"receiveMessages": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		received, err := c.Receive(ctx, text(with, "inbox"), text(with, "consumer"), receiveOf(with))
		var messages []any
		for _, m := range received {
			messages = append(messages, receivedForm(m))
		}
		return map[string]any{"messages": messages}, err
	},
	"acknowledgeMessages": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		results, err := c.Ack(ctx, text(with, "inbox"), text(with, "consumer"), texts(with, "receipts"))
		return map[string]any{"results": results}, err
	},
	"consume": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		ctx, enough := context.WithCancel(ctx)
		defer enough()
		var messages []any
		err := c.Consume(ctx, text(with, "inbox"), text(with, "consumer"), receiveOf(with),
			func(_ context.Context, m client.ReceivedMessage) error {
				messages = append(messages, receivedForm(m))
				if len(messages) == number(with, "until") {
					enough()
				}
				if len(messages) == 1 {
					<-time.After(duration(text(with, "slowFirst")))
				}
				if len(messages) == 1 && with["failFirst"] == true {
					return errors.New("the scenario lets it fail")
				}
				return nil
			})
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return map[string]any{"messages": messages}, err
	},
}

var ofOperations = calls{
	"listChannels": func(ctx context.Context, c *client.Client, _ map[string]any) (any, error) { return c.Channels(ctx) },
	"changeChannel": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		return c.ChangeChannel(ctx, read[client.ChannelChange](with))
	},
	"getCluster": func(ctx context.Context, c *client.Client, _ map[string]any) (any, error) { return c.Cluster(ctx) },
	"getStats":   func(ctx context.Context, c *client.Client, _ map[string]any) (any, error) { return c.Stats(ctx) },
	"whoAmI":     func(ctx context.Context, c *client.Client, _ map[string]any) (any, error) { return c.WhoAmI(ctx) },
	"listKeys": func(ctx context.Context, c *client.Client, _ map[string]any) (any, error) {
		keys, err := c.Keys(ctx)
		return map[string]any{"keys": keys}, err
	},
	"createKey": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		return c.CreateKey(ctx, read[client.KeyWish](with))
	},
	"revokeKey": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		return nil, c.RevokeKey(ctx, text(with, "id"))
	},
	"listTenants": func(ctx context.Context, c *client.Client, _ map[string]any) (any, error) {
		tenants, err := c.Tenants(ctx)
		return map[string]any{"tenants": tenants}, err
	},
	"changeTenant": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		return c.ChangeTenant(ctx, text(with, "tenant"), read[client.TenantChange](with["change"]))
	},
	"getHealth": func(ctx context.Context, c *client.Client, _ map[string]any) (any, error) {
		return map[string]any{"status": "ok"}, c.Health(ctx)
	},
	"getReady": func(ctx context.Context, c *client.Client, _ map[string]any) (any, error) {
		return map[string]any{"status": "ready"}, c.Ready(ctx)
	},
	"getMetrics": func(ctx context.Context, c *client.Client, _ map[string]any) (any, error) {
		metrics, err := c.Metrics(ctx)
		return map[string]any{"text": string(metrics)}, err
	},
	"getOpenAPI": func(ctx context.Context, c *client.Client, _ map[string]any) (any, error) { return c.OpenAPI(ctx) },
	"call": func(ctx context.Context, c *client.Client, with map[string]any) (any, error) {
		header := http.Header{}
		for name, value := range read[map[string]string](with["headers"]) {
			header.Set(name, value)
		}
		a, err := c.Do(ctx, client.Call{Method: text(with, "method"), Path: text(with, "path"),
			Body: []byte(text(with, "body")), Header: header})
		return map[string]any{"status": a.Status}, err
	},
}

func messageOf(with map[string]any) client.Message {
	with = maps.Clone(with)
	rule, _ := with["recurrence"].(map[string]any)
	maps.DeleteFunc(rule, func(_ string, v any) bool { return v == nil }) // a change replaces the whole rule
	m := read[client.Message](with)
	m.Delay = duration(text(with, "delay"))
	payload, isText := with["payload"].(string)
	switch {
	case with["payload"] == nil:
	case with["payloadEncoding"] == "base64":
		m.Payload, _ = base64.StdEncoding.DecodeString(payload)
	case isText && m.ContentType != "":
		m.Payload = []byte(payload)
	default:
		m.Payload, _ = json.Marshal(with["payload"]) // it came from JSON
	}
	return m
}

// withPayload returns a message in the form of JSON.
func withPayload(message any, payload []byte, contentType string) map[string]any {
	form := read[map[string]any](message)
	switch {
	case payload == nil:
	case postdate.IsJSON(contentType):
		form["payload"] = json.RawMessage(payload)
	case utf8.Valid(payload) && !strings.ContainsRune(string(payload), 0):
		form["payload"] = string(payload)
	default:
		form["payload"], form["payloadEncoding"] = payload, "base64"
	}
	return form
}

func receivedForm(m client.ReceivedMessage) map[string]any {
	form := withPayload(m.InboxMessage, m.Payload, m.ContentType)
	form["receipt"], form["deliveries"] = m.Receipt, m.Deliveries
	return form
}

func receiveOf(with map[string]any) client.InboxReceive {
	return client.InboxReceive{Limit: number(with, "limit"), Wait: duration(text(with, "wait")), Visibility: duration(text(with, "visibility"))}
}

func conditions(with map[string]any) (versions []client.IfVersion) {
	if version := text(with, "ifVersion"); version != "" {
		versions = append(versions, client.IfVersion(version))
	}
	return versions
}

// listed collects what an iterator brings.
func listed[T any](name string, from iter.Seq2[T, error], form func(T) any) (any, error) {
	all := []any{}
	for item, err := range from {
		if err != nil {
			return nil, err
		}
		all = append(all, form(item))
	}
	return map[string]any{name: all}, nil
}

// read converts between forms of the same JSON.
func read[T any](from any) (to T) {
	form, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(form, &to)
	}
	if err != nil {
		panic(fmt.Sprintf("%v is no %T: %v", from, to, err))
	}
	return to
}

func text(with map[string]any, name string) string {
	s, _ := with[name].(string)
	return s
}

func texts(with map[string]any, name string) []string { return read[[]string](with[name]) }

func number(with map[string]any, name string) int {
	n, _ := with[name].(float64)
	return int(n)
}

func instant(with map[string]any, name string) time.Time {
	t, _ := time.Parse(time.RFC3339, text(with, name))
	return t
}

func duration(text string) time.Duration {
	d, _ := time.ParseDuration(text)
	return d
}
