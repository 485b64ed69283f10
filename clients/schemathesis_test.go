package clients

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/internal/testrun"
)

var fuzzFor = flag.Duration("schemathesis", time.Minute, "how long Schemathesis makes requests")

// A node answers as the document says, whatever requests Schemathesis makes of it: such as it allows,
// such as it does not, and sequences in which answers lead to the next requests.
func TestSchemathesis(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t, "schemathesis.toml", "hooks.py")
	w.write("openapi.json", withWords(t))
	seed, node := fmt.Sprint(testrun.Seed(t)), newNode(t).url
	out, said, err := w.try("schemathesis", "--config-file", "schemathesis.toml", "run", "openapi.json", "--no-color",
		"--url", node, "--header", "Authorization: Bearer "+adminKey, "--seed", seed, "--max-time", fmt.Sprint(fuzzFor.Seconds()))
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, said)
	}
	t.Log(out)
	if casesOf(t, out) < casesMin {
		return // the machine is too slow for the time: nothing says that these were tried
	}
	for _, done := range []string{`code="201",method="POST",route="/v1/messages"`, `code="200",method="POST",route="/v1/messages/batch"`} {
		if metrics := get(t, node+"/metrics"); !strings.Contains(metrics, "postdate_http_requests_total{"+done+"} ") {
			t.Errorf("no request was answered so: %s", done)
		}
	}
}

// casesMin is how many requests surely have these among them. In a minute there are some thousands.
const casesMin = 2000

// casesOf returns how many requests a report says that Schemathesis made.
func casesOf(t *testing.T, report string) (cases int) {
	t.Helper()
	_, rest, _ := strings.Cut(report, "Test cases:")
	if _, err := fmt.Sscanf(strings.TrimSpace(rest), "%d generated", &cases); err != nil {
		t.Errorf("the report does not say how many cases there were: %v", err)
	}
	return cases
}

// get returns what a node answers.
func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The document that Schemathesis reads takes null for a field that is left out wherever a node does. Requests
// that a node rightly takes would else be called violations of the schema: once in some ten thousand, as chance has it.
func TestNullIsAsIfLeftOutInTheDocument(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromData(withWords(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		schema, body string
		fits         bool
	}{
		{"Schedule", `{"channel": "inbox:a", "payload": 1, "executionTime": "2999-01-01T00:00:00Z"}`, true},
		{"Schedule", `{"channel": "inbox:a", "payload": 1, "executionTime": "2999-01-01T00:00:00Z", "delay": null}`, true},
		{"Schedule", `{"channel": "inbox:a", "payload": 1, "executionTime": null, "delay": "1s", "recurrence": null}`, true},
		{"Schedule", `{"channel": "inbox:a", "payload": 1, "executionTime": "2999-01-01T00:00:00Z", "delay": "1s"}`, false},
		{"Schedule", `{"channel": "inbox:a", "payload": 1, "executionTime": null, "delay": null}`, false},
		{"Recurrence", `{"every": "PT1H", "cron": null, "timezone": null}`, true},
		{"Recurrence", `{"every": "PT1H", "cron": "@hourly"}`, false},
		{"Change", `{"executionTime": null, "delay": "1s"}`, true},
		{"Change", `{"executionTime": "2999-01-01T00:00:00Z", "delay": "1s"}`, false},
		{"Cancel", `{"scheduleIds": ["a"], "filter": null}`, true},
		{"Cancel", `{"scheduleIds": null, "filter": {"channel": "inbox:a"}}`, true},
		{"Cancel", `{"scheduleIds": null, "filter": {}}`, false},
		{"Cancel", `{"scheduleIds": null, "filter": null}`, false},
	} {
		var body any
		if err := json.Unmarshal([]byte(c.body), &body); err != nil {
			t.Fatal(err)
		}
		err := doc.Components.Schemas[c.schema].Value.VisitJSON(body)
		if (err == nil) != c.fits {
			t.Errorf("%s %s: %v; it should fit: %v", c.schema, c.body, err, c.fits)
		}
	}
}

type object = map[string]any

// withWords returns the document with what it says in words only, because generators make nothing of it:
// the rules that the tests of api know too; that null is as if a field were left out; that an item of many
// which is wrong fails alone; and how every call may be refused.
func withWords(t *testing.T) []byte {
	t.Helper()
	var doc struct {
		Components struct{ Schemas map[string]object }
	}
	var whole object
	var words map[string]object
	text, err := os.ReadFile("../api/testdata/words.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, read := range []struct {
		text []byte
		to   any
	}{{api.OpenAPI, &doc}, {api.OpenAPI, &whole}, {text, &words}} {
		if err := json.Unmarshal(read.text, read.to); err != nil {
			t.Fatal(err)
		}
	}
	schemas := doc.Components.Schemas
	for name, rules := range words {
		for keyword, rule := range rules {
			schemas[name][keyword] = rule
		}
	}
	for name, schema := range schemas {
		if schema["additionalProperties"] == false { // then it is one of a request
			requireMoreThanNull(words[name])
			allowNull(schema)
		}
	}
	at(schemas["Cancel"], "properties", "scheduleIds")["items"] = object{"type": []string{"string", "null"}}
	whole["components"].(object)["schemas"] = schemas
	at(whole, "paths", "/v1/messages/batch", "post", "requestBody", "content", "application/json", "schema")["items"] = object{
		"anyOf": []object{{"$ref": "#/components/schemas/Schedule"}, {}},
	}
	for _, methods := range whole["paths"].(object) {
		for _, operation := range methods.(object) {
			responses := at(operation.(object), "responses")
			for _, status := range []string{"400", "403", "404", "405", "408", "431"} {
				if responses[status] == nil {
					responses[status] = refusal
				}
			}
		}
	}
	text, err = json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// refusal is the document's answer of a call that is refused.
var refusal = object{
	"description": "It is refused.",
	"content":     object{"application/problem+json": object{"schema": object{"$ref": "#/components/schemas/Problem"}}},
}

// allowNull allows null in fields that may be left out.
func allowNull(schema object) {
	required, _ := schema["required"].([]any)
	properties, _ := schema["properties"].(object)
	for name, property := range properties {
		if !slices.Contains(required, any(name)) {
			properties[name] = object{"anyOf": []any{property, object{"type": "null"}}}
		}
	}
}

// requireMoreThanNull makes rules take a field that is null for one that is left out.
func requireMoreThanNull(rules any) {
	switch rule := rules.(type) {
	case []any:
		for _, each := range rule {
			requireMoreThanNull(each)
		}
	case object:
		for _, part := range rule {
			requireMoreThanNull(part)
		}
		if required, there := rule["required"].([]any); there {
			given := object{}
			for _, name := range required {
				given[name.(string)] = object{"not": object{"type": "null"}}
			}
			rule["allOf"] = []any{object{"properties": given}}
		}
	}
}

// at returns the object in a tree of objects.
func at(tree object, path ...string) object {
	for _, name := range path {
		tree = tree[name].(object)
	}
	return tree
}
