package tracing

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/postdate/postdate"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestParent(t *testing.T) {
	if got, _ := Checked([]byte(parent)); got != parent {
		t.Errorf("got %q", got)
	}
	for _, bad := range []string{
		"", parent + "0", strings.ToUpper(parent), "01" + parent[2:], strings.Replace(parent, "-", "_", 1),
		"00-" + strings.Repeat("0", 32) + parent[35:], parent[:36] + strings.Repeat("0", 16) + parent[52:], "0x" + parent[2:],
	} {
		if got, state := Checked([]byte(bad), []byte("a=1")); got != "" || state != "" {
			t.Errorf("%q is taken, with %q", bad, state)
		}
	}
}

func TestState(t *testing.T) {
	long := func(n int) string { return strings.Repeat("a", n) }
	var many []string
	for i := range membersMax {
		many = append(many, fmt.Sprintf("k%d=1", i))
	}
	full := long(256) + "=" + long(254)
	for _, good := range []string{
		"a=1", "a=1,b=2", "a= 1", "a=1 , b=2", "a=1,,b=2", "vendor@system=t/x;y", "0a=!~", "a_-*/@b=c", strings.Join(many, ","), full + ",",
	} {
		if _, got := Checked([]byte(parent), []byte(good)); got != good {
			t.Errorf("%q becomes %q", good, got)
		}
	}
	for _, bad := range []string{
		"", " ", ",", "a", "a=", "=1", "A=1", "@a=1", "a b=1", "a=1,a=2", "a=1=2", "a=1,b", "a=\x7f", "a=ä", "a=1\nb=2",
		strings.Join(append(many, "k=1"), ","), full + ",,", long(257) + "=1", "a=" + long(257),
	} {
		if _, got := Checked([]byte(parent), []byte(bad)); got != "" {
			t.Errorf("%q becomes %q", bad, got)
		}
	}
	if _, got := Checked([]byte(parent), []byte(" a=1 "), []byte("b=2\t")); got != "a=1 ,b=2" {
		t.Errorf("two lines become %q", got)
	}
}

// FuzzContext: whatever comes, what is kept is within its limits and is kept again unchanged, and what OpenTelemetry's
// own parser takes is kept if it is short enough.
func FuzzContext(f *testing.F) {
	f.Add([]byte(parent), []byte("a=1,b=2"), []byte("c=3"))
	f.Add([]byte(parent), []byte("a=1,a=2"), []byte(" \t"))
	f.Add([]byte("00-x"), []byte("congo=t61rcWkgMzE"), []byte(""))
	f.Fuzz(func(t *testing.T, parent, one, other []byte) {
		p, s := Checked(parent, one, other)
		if p != "" && p != string(parent) || p == "" && s != "" || len(s) > postdate.TracestateBytesMax || strings.ContainsAny(s, "\r\n\x00") {
			t.Fatalf("%q, %q", p, s)
		}
		if s == "" {
			whole := bytes.Join([][]byte{one, other}, []byte(","))
			if known, err := trace.ParseTraceState(string(whole)); p != "" && err == nil && known.Len() > 0 && len(whole) <= postdate.TracestateBytesMax {
				t.Fatalf("%q is dropped", whole)
			}
			return
		}
		if q, r := Checked([]byte(p), []byte(s)); q != p || r != s {
			t.Fatalf("%q, %q becomes %q, %q", p, s, q, r)
		}
	})
}
