package clients

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	variable = regexp.MustCompile(`\$\{(\w+)\}`)
	repeated = regexp.MustCompile(`^\{x (\d+)\}$`)
)

// fill returns a value of the scenario with its variables filled in.
func fill(value any, saved map[string]string) any {
	switch value := value.(type) {
	case map[string]any:
		filled := map[string]any{}
		for name, v := range value {
			filled[name] = fill(v, saved)
		}
		return filled
	case []any:
		filled := []any{}
		for _, v := range value {
			filled = append(filled, fill(v, saved))
		}
		return filled
	case string:
		if m := repeated.FindStringSubmatch(value); m != nil {
			n, _ := strconv.Atoi(m[1])
			return strings.Repeat("x", n)
		}
		return variable.ReplaceAllStringFunc(value, func(v string) string { return saved[v[2:len(v)-1]] })
	}
	return value
}

// mismatch says what of an answer is not as it is wanted; "": nothing.
func mismatch(want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		object, _ := got.(map[string]any)
		for name, w := range want {
			if miss := mismatch(w, object[name]); miss != "" {
				return "/" + name + miss
			}
		}
		return ""
	case []any:
		list, _ := got.([]any)
		for n, w := range want {
			for len(list) > 0 && mismatch(w, list[0]) != "" {
				list = list[1:]
			}
			if len(list) == 0 {
				return fmt.Sprintf("/%d: there is no %v", n, w)
			}
			list = list[1:]
		}
		return ""
	case string:
		if matchesText(want, got) {
			return ""
		}
	default:
		if reflect.DeepEqual(want, got) || want == false && got == nil { // false may be left out
			return ""
		}
	}
	return fmt.Sprintf(": is %v, want %v", got, want)
}

func matchesText(want string, got any) bool {
	text, _ := got.(string)
	part, isPart := strings.CutPrefix(want, "{has ")
	from, isFrom := strings.CutPrefix(want, "{in ")
	list, isList := got.([]any)
	switch {
	case want == "{done}":
		return true
	case want == "{any}":
		return got != nil
	case want == "{none}":
		return got == nil || isList && len(list) == 0
	case isPart:
		return strings.Contains(text, strings.TrimSuffix(part, "}"))
	}
	at, err := time.Parse(time.RFC3339, want)
	is, failed := time.Parse(time.RFC3339, text)
	if isFrom {
		return (time.Until(is) - duration(strings.TrimSuffix(from, "}"))).Abs() < time.Minute
	}
	return text == want || err == nil && failed == nil && at.Equal(is)
}

// find returns the value at a JSON pointer.
func find(in any, pointer string) any {
	for _, name := range strings.Split(pointer, "/")[1:] {
		switch v := in.(type) {
		case map[string]any:
			in = v[name]
		case []any:
			n, err := strconv.Atoi(name)
			if err != nil || n >= len(v) {
				return nil
			}
			in = v[n]
		default:
			return nil
		}
	}
	return in
}

// What does not match is said.
func TestMismatch(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(time.Hour).Format(time.RFC3339)
	for _, c := range []struct{ want, got, miss string }{
		{`{"a": 1}`, `{"a": 1, "b": 2}`, ""},
		{`{"a": 1}`, `{"b": 1}`, "/a: is <nil>, want 1"},
		{`{"a": {"b": "x"}}`, `{"a": {"b": "y"}}`, "/a/b: is y, want x"},
		{`[1, 3]`, `[1, 2, 3]`, ""},
		{`[3, 1]`, `[1, 2, 3]`, "/1: there is no 1"},
		{`[1, 1]`, `[1]`, "/1: there is no 1"},
		{`{"a": "{any}"}`, `{"a": 0}`, ""},
		{`{"a": "{any}"}`, `{}`, "/a: is <nil>, want {any}"},
		{`{"a": "{none}"}`, `{"a": []}`, ""},
		{`{"a": "{none}"}`, `{"a": [1]}`, "/a: is [1], want {none}"},
		{`"{has b}"`, `"abc"`, ""},
		{`"{has d}"`, `"abc"`, ": is abc, want {has d}"},
		{`"{in 1h}"`, `"` + soon + `"`, ""},
		{`"{in 2h}"`, `"` + soon + `"`, ": is " + soon + ", want {in 2h}"},
		{`"2037-01-31T09:30:00+01:00"`, `"2037-01-31T08:30:00.000Z"`, ""},
		{`"2037-01-31T09:30:00Z"`, `"2037-01-31T08:30:00Z"`, ": is 2037-01-31T08:30:00Z, want 2037-01-31T09:30:00Z"},
		{`{"a": false}`, `{}`, ""},
		{`{"a": true}`, `{}`, "/a: is <nil>, want true"},
	} {
		if miss := mismatch(read[any](json.RawMessage(c.want)), read[any](json.RawMessage(c.got))); miss != c.miss {
			t.Errorf("%s in %s: %q, want %q", c.want, c.got, miss, c.miss)
		}
	}
}
