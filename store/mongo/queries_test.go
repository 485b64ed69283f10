package mongo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

var (
	queryText  = regexp.MustCompile("(?s)\\(index `([^`]+)`([^)]*)\\)[^`]*:\n\n```js\n(.*?)\n```")
	callText   = regexp.MustCompile(`db\.messages\.(find|aggregate)\((.*?)\)(?:\.sort\(([^)]*)\)\.limit\((\d+)\))?(?:\.hint\("[^"]+"\))?(?:\.toArray\(\)|$)`)
	hintText   = regexp.MustCompile(`(?:\.hint\(|"hint": )"([^"]+)"`)
	dateText   = regexp.MustCompile(`ISODate\("([^"]+)"\)`)
	groupsText = regexp.MustCompile(`(?m)^buckets = \[\.\.\.Array\(db\.birth\.findOne\(\)\.(\w+)\)\.keys\(\)\]; groups = buckets\.filter\(b => b % (\d+) == 0\)\.map\(b => buckets\.slice\(b, b \+ (\d+)\)\)`)
)

// operatorsQuery is a query of docs/operations.md.
type operatorsQuery struct {
	index string
	alone bool   // it reads only the index
	verb  string // find or aggregate
	text  string // its arguments, as mongosh takes them
	sort  string // of a find that is made for each group of buckets; else empty
	limit int
}

// TestQueriesForOperators explains the queries of docs/operations.md in a store of 256 buckets
// with thousands of overdue and finished messages: each uses the index that is named there, and
// those that show the first ones read little more than these.
func TestQueriesForOperators(t *testing.T) {
	const buckets = 256
	queries, groupSize := operatorsQueries(t)
	c := DefaultConfig(mongotest.Fresh(t))
	c.Buckets = buckets
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var birth struct {
		Buckets int `bson:"buckets"`
	}
	if err := s.births().FindOne(t.Context(), doc()).Decode(&birth); err != nil || birth.Buckets != buckets {
		t.Fatalf("db.birth.findOne().buckets is %d (%v)", birth.Buckets, err)
	}
	all := make([]int, buckets)
	for i := range all {
		all[i] = i
	}
	late, failed := fillForOperators(t, s)
	for _, q := range queries {
		if q.sort == "" {
			if plan, _ := q.explain(t, s, all); q.alone && strings.Contains(plan, `"FETCH"`) {
				t.Errorf("%s reads messages, and not its index alone: %s", q.text, plan)
			}
			continue
		}
		var found []document
		examined := 0
		for group := range slices.Chunk(all, groupSize) {
			plan, n := q.explain(t, s, group)
			if strings.Contains(plan, `"SORT"`) {
				t.Errorf("%s sorts what it reads: %s", q.text, plan)
			}
			examined += n
			found = append(found, q.run(t, s, group)...)
		}
		want, most := late, 2*q.limit // what it shows, for each of two groups
		byEnd := q.index == "settled"
		if byEnd {
			want, most = failed, 2*q.limit*failedEvery+buckets
		}
		if examined < q.limit || examined > most {
			t.Errorf("%s read %d messages, want %d to %d", q.text, examined, q.limit, most)
		}
		if len(found) < q.limit {
			t.Fatalf("%s found %d messages", q.text, len(found))
		}
		slices.SortFunc(found, func(a, b document) int {
			if byEnd {
				return -cmp.Compare(*a.SettledAt, *b.SettledAt)
			}
			return cmp.Compare(*a.Due, *b.Due)
		})
		for j := range q.limit {
			if found[j].ID != want[j] {
				t.Fatalf("%s shows %q in place %d, want %q", q.text, found[j].ID, j, want[j])
			}
		}
	}
}

// operatorsQueries are the queries of docs/operations.md, and the size of the groups of buckets
// that some of them go by.
func operatorsQueries(t *testing.T) (queries []operatorsQuery, groupSize int) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	groups := groupsText.FindStringSubmatch(string(text))
	if groups == nil || groups[1] != "buckets" || groups[2] != groups[3] {
		t.Fatalf("docs/operations.md makes the groups of buckets in another way: %q", groups)
	}
	groupSize, _ = strconv.Atoi(groups[2])
	for _, block := range queryText.FindAllStringSubmatch(string(text), -1) {
		call := callText.FindStringSubmatch(block[3])
		if call == nil {
			t.Fatalf("this is no query: %s", block[3])
		}
		q := operatorsQuery{index: block[1], alone: strings.Contains(block[2], "alone"), verb: call[1], text: call[2], sort: call[3]}
		q.limit, _ = strconv.Atoi(call[4])
		if hint := hintText.FindStringSubmatch(block[3]); hint == nil || hint[1] != q.index {
			t.Errorf("a query by the index %s has the hint %q", q.index, hint)
		}
		if (q.sort != "") != strings.HasPrefix(block[3], "groups.flatMap(g => db.messages.find(") {
			t.Errorf("a query sorts if, and only if, it goes by groups: %s", block[3])
		}
		queries = append(queries, q)
	}
	if len(queries) != 5 || queries[0].sort == "" || queries[1].sort == "" {
		t.Fatalf("docs/operations.md has %d queries, want 5, the first two by groups", len(queries))
	}
	return queries, groupSize
}

// failedEvery is the share of the finished messages that failed: one in so many.
const failedEvery = 3

// fillForOperators lays down 4,000 overdue messages and 3,000 finished ones, and returns the ids
// of those that are overdue, and of those that failed, in the order in which the queries show
// them.
func fillForOperators(t *testing.T, s *Store) (late, failed []string) {
	now := postdate.Time(time.Now().UnixMilli())
	var all []any
	for i := range 7_000 {
		at := now - 1_000*3_000 + postdate.Time(i*400) // within the last hour
		m := postdate.Message{Key: bucket.KeyOf("default", fmt.Sprint("m", i), s.c.Buckets), Channel: "inbox:a", ExecutionTime: at, CreatedAt: at - 1, Payload: []byte("{}")}
		st := postdate.State{Status: postdate.Pending, Version: 1 << 16, AttemptTime: at}
		switch {
		case i < 4_000:
			late = append(late, idOf(m.Key))
		case i%failedEvery == 0:
			st.Status, st.SettledAt, st.LastError = postdate.DeliveryFailed, at, "refused"
			failed = append(failed, idOf(m.Key))
		default:
			st.Status, st.SettledAt = postdate.Delivered, at
		}
		all = append(all, documentOf(&m, &st))
	}
	if _, err := s.messages.InsertMany(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(failed)
	return late, failed
}

// command is the query of these buckets.
func (q *operatorsQuery) command(t *testing.T, buckets []int) bson.D {
	var holder struct{ Arguments []bson.RawValue }
	if err := bson.UnmarshalExtJSON([]byte(`{"arguments": [`+extended(q.text, buckets)+`]}`), false, &holder); err != nil {
		t.Fatalf("%s: %v", q.text, err)
	}
	first := holder.Arguments[0]
	if q.verb == "aggregate" {
		return doc("aggregate", "messages", "pipeline", first, "cursor", doc(), "hint", q.index)
	}
	command := doc("find", "messages", "filter", first, "hint", q.index)
	if q.sort != "" {
		var sort bson.D
		if err := bson.UnmarshalExtJSON([]byte(q.sort), false, &sort); err != nil {
			t.Fatal(err)
		}
		command = append(command, doc("sort", sort, "limit", q.limit)...)
	}
	return command
}

// explain checks that the query of these buckets goes by its index. It returns the plan, and how
// many messages were read.
func (q *operatorsQuery) explain(t *testing.T, s *Store, buckets []int) (plan string, examined int) {
	var answer bson.Raw
	err := s.messages.Database().RunCommand(context.Background(), doc("explain", q.command(t, buckets), "verbosity", "executionStats")).Decode(&answer)
	if err != nil {
		t.Fatal(err)
	}
	plan = answer.String()
	if !strings.Contains(plan, `"indexName": "`+q.index+`"`) || strings.Contains(plan, `"COLLSCAN"`) {
		t.Errorf("%s does not go by the index %s: %s", q.text, q.index, plan)
	}
	if n, ok := answer.Lookup("executionStats", "totalDocsExamined").AsInt64OK(); ok {
		examined = int(n)
	}
	return plan, examined
}

// run makes the find of these buckets.
func (q *operatorsQuery) run(t *testing.T, s *Store, buckets []int) (found []document) {
	cursor, err := s.messages.Database().RunCommandCursor(t.Context(), q.command(t, buckets))
	if err == nil {
		err = cursor.All(t.Context(), &found)
	}
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// extended makes Extended JSON of what mongosh takes.
func extended(arguments string, buckets []int) string {
	list, _ := json.Marshal(buckets)
	date := func(at time.Time) string { return `{"$date": "` + at.UTC().Format(time.RFC3339) + `"}` }
	return dateText.ReplaceAllString(strings.NewReplacer(
		`{"$in": g}`, `{"$in": `+string(list)+`}`,
		`{"$in": buckets}`, `{"$in": `+string(list)+`}`,
		"new Date(Date.now() + 3600000)", date(time.Now().Add(time.Hour)),
		"new Date(Date.now() - 3600000)", date(time.Now().Add(-time.Hour)),
		"new Date()", date(time.Now()),
	).Replace(arguments), `{"$$date": "$1"}`)
}
