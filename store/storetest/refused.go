package storetest

import (
	"strings"
	"testing"

	"github.com/postdate/postdate"
)

// Refused fails the test unless err, of an attempt to open a store, is of a kind and contains all
// words.
func Refused(t *testing.T, err error, kind postdate.Kind, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("it was opened; wanted %q", words)
	}
	if got := postdate.KindOf(err); got != kind {
		t.Errorf("the kind is %v, want %v: %v", got, kind, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("it says %q, and not %q", err, w)
		}
	}
}
