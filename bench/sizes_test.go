package main

import (
	"strings"
	"testing"
)

func TestTheSizesAreOfOneMessage(t *testing.T) {
	s := stored{n: 10, oplog: 9000,
		documents: collection{data: 6000, files: 4000, free: 50, cache: 5000, indexCache: 800,
			indexes: map[string]int64{"_id_": 700, "due": 800, "parked": 20, "hashed": 10}},
		inboxes: collection{files: 2000, free: 30, cache: 100, indexCache: 20, indexes: map[string]int64{"_id_": 40}}}
	want := "some 600 400 70 80 0 0 0 3 204 757 8 510 82 900"
	if got := strings.Join(s.cells("some"), " "); got != want {
		t.Errorf("the line is\n%s\nnot\n%s", got, want)
	}
	if got := len(s.cells("some")); got != len(sizeColumns) {
		t.Errorf("a line has %d cells under %d headings", got, len(sizeColumns))
	}
	if len(s.documents.indexes) != 4 {
		t.Errorf("the line takes away from the sizes: %v", s.documents.indexes)
	}
}
