package node_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/client"
)

// foreign are a tenant's calls against another tenant's things, for each operation of the document:
// what is sent, and the status that is the answer.
var foreign = map[string]struct {
	path, body string
	status     int
}{
	"POST /v1/messages":                                  {"/v1/messages", `{"scheduleId":"both","channel":"inbox:both","delay":"PT1H","payload":"of b"}`, 201},
	"GET /v1/messages":                                   {"/v1/messages?limit=1000", "", 200},
	"POST /v1/messages/batch":                            {"/v1/messages/batch", `[{"scheduleId":"both","channel":"inbox:both","delay":"PT1H","payload":"of b"}]`, 200},
	"POST /v1/messages/cancel":                           {"/v1/messages/cancel", `{"scheduleIds":["acme-only","both"]}`, 200},
	"GET /v1/upcoming":                                   {"/v1/upcoming", "", 200},
	"GET /v1/failures":                                   {"/v1/failures", "", 200},
	"GET /v1/jobs/{id}":                                  {"/v1/jobs/acme-only", "", 404},
	"POST /v1/messages/redrive":                          {"/v1/messages/redrive", `{"scheduleIds":["acme-only","both"]}`, 200},
	"POST /v1/messages/purge":                            {"/v1/messages/purge", `{"scheduleIds":["acme-only","both"]}`, 200},
	"GET /v1/messages/{id}":                              {"/v1/messages/acme-only", "", 404},
	"PUT /v1/messages/{id}":                              {"/v1/messages/acme-only", `{"channel":"inbox:both","delay":"PT2H","payload":"of b"}`, 201},
	"PATCH /v1/messages/{id}":                            {"/v1/messages/acme-hook", `{"delay":"PT3H"}`, 404},
	"DELETE /v1/messages/{id}":                           {"/v1/messages/acme-hook", "", 404},
	"POST /v1/messages/{id}/trigger":                     {"/v1/messages/acme-series/trigger", "", 404},
	"POST /v1/recurrences/preview":                       {"/v1/recurrences/preview", `{"recurrence":{"every":"PT1H"}}`, 200},
	"POST /schedulers":                                   {"/schedulers", `{"host":"acme","name":"sweep","action":"DELETE"}`, 403},
	"GET /schedulers":                                    {"/schedulers", "", 200},
	"GET /v1/inbox/{name}":                               {"/v1/inbox/both", "", 200},
	"POST /v1/inbox/{name}/consumers/{consumer}/receive": {"/v1/inbox/both/consumers/acme-worker/receive", "{}", 200},
	"POST /v1/inbox/{name}/consumers/{consumer}/ack":     {"/v1/inbox/both/consumers/acme-worker/ack", `{"receipts":["x"]}`, 200},
	"GET /v1/channels":                                   {"/v1/channels", "", 200},
	"PATCH /v1/channels":                                 {"/v1/channels", `{"channel":"inbox:both","paused":true}`, 200},
	"GET /v1/cluster":                                    {"/v1/cluster", "", 200},
	"GET /v1/stats":                                      {"/v1/stats", "", 200},
	"GET /v1/whoami":                                     {"/v1/whoami", "", 200},
	"GET /v1/keys":                                       {"/v1/keys", "", 403},
	"POST /v1/keys":                                      {"/v1/keys", `{"tenant":"acme","scopes":["sched:r"]}`, 403},
	"DELETE /v1/keys/{id}":                               {"/v1/keys/x", "", 403},
	"GET /v1/tenants":                                    {"/v1/tenants", "", 403},
	"PATCH /v1/tenants/{tenant}":                         {"/v1/tenants/acme", `{"pendingMax":1}`, 403},
	"GET /healthz":                                       {"/healthz", "", 200},
	"GET /readyz":                                        {"/readyz", "", 200},
	"GET /metrics":                                       {"/metrics", "", 200},
	"GET /openapi.json":                                  {"/openapi.json", "", 200},
}

// A tenant that runs every operation against another tenant's things finds nothing of them, and changes
// nothing.
func TestNothingOfAnotherTenantIsFound(t *testing.T) {
	c := config(t)
	c.AdminKey = adminKey
	n, _ := start(t, c)
	admin := clientWith(t, n, adminKey)
	acme, later := clientWith(t, n, keyFor(t, admin, "acme").Text), time.Now().Add(time.Hour)
	for id, channel := range map[string]string{"acme-only": "inbox:acme-box", "acme-hook": "https://acme-hook.invalid/path", "both": "inbox:both"} {
		if _, err := acme.Schedule(patient(t), client.Message{ScheduleID: id, Channel: channel, ExecutionTime: later, Payload: []byte(`"of acme"`)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []client.Message{{ScheduleID: "acme-series", Recurrence: &client.Recurrence{Every: time.Hour, Start: later}}, {ScheduleID: "now", ExecutionTime: time.Now()}} {
		m.Channel, m.Payload = "inbox:both", []byte(`"of acme"`)
		if _, err := acme.Schedule(patient(t), m); err != nil {
			t.Fatal(err)
		}
	}
	if page, err := acme.ReadInbox(patient(t), "both", client.InboxRead{Wait: 30 * time.Second}); err != nil || len(page.Messages) != 1 {
		t.Fatalf("acme reads %+v, %v", page, err)
	}
	operator, err := admin.CreateKey(patient(t), client.KeyWish{Tenant: "acme", Scopes: []string{"ops:r", "channels:w"}})
	if err != nil {
		t.Fatal(err)
	}
	acmeChannels := clientWith(t, n, operator.Text)
	if err := acmeChannels.Pause(patient(t), "inbox:acme-box"); err != nil {
		t.Fatal(err)
	}
	b, err := admin.CreateKey(patient(t), client.KeyWish{Tenant: "b", Scopes: []string{"sched:r", "sched:w", "channels:w", "ops:r"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, operation := range documented(t) {
		mine, planned := foreign[operation]
		if !planned {
			t.Errorf("no call is planned for %s", operation)
			continue
		}
		method, _, _ := strings.Cut(operation, " ")
		status, body := call(t, "http://"+n.Addr()+mine.path, method, mine.body, b.Text)
		if status != mine.status {
			t.Errorf("%s: %d %s, want %d", operation, status, body, mine.status)
		}
		sent := mine.path + mine.body
		for _, word := range []string{"of acme", "acme-only", "acme-hook", "acme-box", "acme-series", "tenant=\"acme\""} {
			if strings.Contains(body, word) && !strings.Contains(sent, word) {
				t.Errorf("%s shows %q: %s", operation, word, body)
			}
		}
	}
	for _, id := range []string{"acme-only", "acme-hook", "both"} {
		r, err := acme.Get(patient(t), id)
		if err != nil || r.Status != client.Pending || string(r.Payload) != `"of acme"` || r.ExecutionTime.Sub(later).Abs() > time.Second {
			t.Errorf("afterwards %s is %+v, %v", id, r, err)
		}
	}
	if r, err := acme.Get(patient(t), "acme-series"); err != nil || r.Series.Paused || r.Series.Fired != 0 {
		t.Errorf("afterwards the series is %+v, %v", r, err)
	}
	list, err := acmeChannels.Channels(patient(t))
	for _, c := range list.Channels {
		if c.Paused != (c.Channel == "inbox:acme-box") {
			t.Errorf("afterwards %s is paused: %t", c.Channel, c.Paused)
		}
	}
	if err != nil || len(list.Channels) == 0 {
		t.Errorf("the channels are %+v, %v", list, err)
	}
}

// documented lists the operations of the API's document, sorted.
func documented(t *testing.T) (all []string) {
	t.Helper()
	var d struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(api.OpenAPI, &d); err != nil {
		t.Fatal(err)
	}
	for path, item := range d.Paths {
		for method := range item {
			if method != "parameters" {
				all = append(all, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(all)
	return all
}

func call(t *testing.T, url, method, body, key string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(patient(t), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(raw)
}
