package mongo

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate/store/mongo/mongotest"
)

var (
	queryText = regexp.MustCompile("(?s)\\(index `([^`]+)`([^)]*)\\):\n\n```js\ndb\\.messages\\.(find|aggregate)\\((.*?)\\)\n```")
	dateText  = regexp.MustCompile(`ISODate\("([^"]+)"\)`)
	hintText  = regexp.MustCompile(`(?:\.hint\(|"hint": )"([^"]+)"`)
	laterText = regexp.MustCompile(`\)\.(?:sort|limit|hint)\(.*$`)
)

// TestQueriesForOperators explains the queries of docs/operations.md: each uses the index that
// is named there.
func TestQueriesForOperators(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	f := fill(t, mongotest.Fresh(t))
	s := f.open()
	defer s.Close()
	queries := queryText.FindAllStringSubmatch(string(text), -1)
	if len(queries) != 5 {
		t.Fatalf("docs/operations.md has %d queries, want 5", len(queries))
	}
	for _, q := range queries {
		index, remark, verb, arguments := q[1], q[2], q[3], q[4]
		if hint := hintText.FindStringSubmatch(arguments); hint == nil || hint[1] != index {
			t.Errorf("a query by the index %s has the hint %q", index, hint)
		}
		var list []bson.RawValue
		var holder struct{ Arguments []bson.RawValue }
		if err := bson.UnmarshalExtJSON([]byte(`{"arguments": [`+extended(arguments)+`]}`), false, &holder); err != nil {
			t.Fatalf("%s: %v", arguments, err)
		}
		list = holder.Arguments
		command := doc("find", "messages", "filter", list[0], "hint", index)
		if verb == "aggregate" {
			command = doc("aggregate", "messages", "pipeline", list[0], "cursor", doc(), "hint", index)
		}
		var answer bson.Raw
		err := s.messages.Database().RunCommand(context.Background(), doc("explain", command, "verbosity", "executionStats")).Decode(&answer)
		if err != nil {
			t.Fatal(err)
		}
		plan := answer.String()
		if !strings.Contains(plan, `"indexName": "`+index+`"`) || strings.Contains(plan, `"COLLSCAN"`) {
			t.Errorf("the query does not go by the index %s: %s", index, plan)
		}
		if strings.Contains(remark, "alone") && strings.Contains(plan, `"FETCH"`) {
			t.Errorf("the query reads messages, and not its index alone: %s", plan)
		}
	}
}

// extended makes Extended JSON of what mongosh takes.
func extended(arguments string) string {
	buckets, _ := json.Marshal([]int{0, 1, 2, 3, 4, 5, 6, 7})
	now := `{"$date": "` + time.Now().UTC().Format(time.RFC3339) + `"}`
	arguments = laterText.ReplaceAllString(arguments, "")
	arguments = strings.ReplaceAll(arguments, "[...Array(64).keys()]", string(buckets))
	arguments = strings.ReplaceAll(arguments, "new Date(Date.now() + 3600000)", now)
	arguments = strings.ReplaceAll(arguments, "new Date()", now)
	return dateText.ReplaceAllString(arguments, `{"$$date": "$1"}`)
}
