package api

import (
	"strings"
	"testing"

	"github.com/postdate/postdate"
)

// A cancel with a filter starts a job, of which GET tells how far it has come.
func TestCancelByAFilter(t *testing.T) {
	r := newRig(t)
	const whole = `{"label":"a","idPrefix":"order-","channel":"inbox:test","from":"2027-01-01T00:00:00.000Z","to":"2028-01-01T00:00:00.000Z"}`
	a := r.send("POST", "/v1/messages/cancel", `{"filter":`+whole+`}`)
	a.is(202)
	at := a.header.Get("Location")
	id, is := strings.CutPrefix(at, "/v1/jobs/")
	if !is || a.body != `{"jobId":"`+id+`"}` || r.started.Load() != 1 {
		t.Errorf("the answer is %s at %q; %d jobs were told of", a.body, at, r.started.Load())
	}
	r.send("GET", at, "").want(200, `{"jobId":"`+id+`","kind":"cancel","filter":{"label":"a","idPrefix":"order-","channel":"inbox:test",`+
		`"from":"2027-01-01T00:00:00.000Z","to":"2028-01-01T00:00:00.000Z"},"state":"running","done":0,"failed":0,"createdAt":"`+testNow.String()+`"}`)
	var buckets []int
	for b := range testBuckets {
		buckets = append(buckets, b)
	}
	open, err := r.store.OpenJobs(t.Context(), buckets)
	if err != nil || len(open) != 1 {
		t.Fatalf("the jobs are %v, %v", open, err)
	}
	next := open[0]
	next.Version, next.Done, next.Failed, next.LastError, next.EndedAt = 2, 5, 2, "too late", testNow+1
	if done, err := r.store.SetJob(t.Context(), next); !done || err != nil {
		t.Fatal(done, err)
	}
	if got := r.send("GET", at, ""); !strings.Contains(got.body, `"state":"done","done":5,"total":7,"failed":2,"createdAt"`) ||
		!strings.Contains(got.body, `"lastError":"too late"}`) {
		t.Errorf("in the end it is %s", got.body)
	}
	r.send("POST", "/v1/messages/cancel", `{"filter":{"label":"b"}}`).is(202)
}

// A redrive and a purge take the error of what failed, whatever is in it. A cancel does not.
func TestFilterByLastError(t *testing.T) {
	r := newRig(t)
	longest := strings.Repeat("ü", postdate.LastErrorBytesMax/2)
	for _, call := range []string{"redrive", "purge"} {
		for _, words := range []string{`no \"route\"\u0000\n`, longest} {
			a := r.send("POST", "/v1/messages/"+call, `{"filter":{"channel":"inbox:test","lastError":"`+words+`"}}`)
			a.is(202)
			if got := r.send("GET", a.header.Get("Location"), ""); !strings.Contains(got.body, `"kind":"`+call+`","filter":{"channel":"inbox:test","lastError":"`+words+`"},"state"`) {
				t.Errorf("the job is %s", got.body)
			}
		}
		for filter, words := range map[string]string{`{"lastError":""}`: "is empty: give the whole", `{"lastError":null}`: "lastError", `{"lastError":"x` + longest + `"}`: "513 bytes",
			`{"label":"a","lastErrors":"x"}`: "lastError"} {
			if a := r.send("POST", "/v1/messages/"+call, `{"filter":`+filter+`}`); a.status != 400 || !strings.Contains(a.body, words) || !strings.Contains(a.body, `"pointer":"/filter/lastError`) {
				t.Errorf("%s is answered %d %s", filter, a.status, a.body)
			}
		}
	}
	r.send("POST", "/v1/messages/cancel", `{"filter":{"channel":"inbox:test","lastError":"down"}}`).problem(400, InvalidField, `"pointer":"/filter/lastError"`, "a cancel is for what is pending")
}

func TestFiltersThatAreRefused(t *testing.T) {
	r := newRig(t)
	r.send("GET", "/v1/jobs/a%20b", "").problem(400, InvalidParameter, "is not the id of a job")
	for filter, words := range map[string]string{
		`{}`: "would select everything", `{"label":null}`: `"pointer":"/filter/label"`, `{"label":""}`: `"pointer":"/filter/label"`, `{"labels":["a"]}`: `"pointer":"/filter/labels"`,
		`{"idPrefix":""}`: "give what the ids begin with", `{"idPrefix":"a b"}`: `"pointer":"/filter/idPrefix"`, `{"channel":"inbox"}`: `"pointer":"/filter/channel"`,
		`{"from":"now"}`: `"pointer":"/filter/from"`, `{"to":"2027-13-01"}`: `"pointer":"/filter/to"`,
		`{"from":"2027-01-02T00:00:00Z","to":"2027-01-02T00:00:00Z"}`: `"pointer":"/filter/to"`,
	} {
		a := r.send("POST", "/v1/messages/cancel", `{"filter":`+filter+`}`)
		if a.is(400); !strings.Contains(a.body, words) {
			t.Errorf("%s is answered %s", filter, a.body)
		}
	}
	r.send("POST", "/v1/messages/cancel", `{"scheduleIds":[],"filter":{"label":"a"}}`).problem(400, InvalidField, "leave one out")
	if n := r.started.Load(); n != 0 {
		t.Errorf("%d jobs were started", n)
	}
	for range 16 {
		r.send("POST", "/v1/messages/cancel", `{"filter":{"label":"a"}}`).is(202)
	}
	r.send("POST", "/v1/messages/cancel", `{"filter":{"label":"a"}}`).problem(429, Limited, "wait until one ends")
}
