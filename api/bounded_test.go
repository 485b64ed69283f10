package api

import (
	"testing"
	"time"
)

// TestBounded checks that calls that begin together share a context, and that none may take longer than the bound, or
// much less.
func TestBounded(t *testing.T) {
	b := bounded{most: time.Hour}
	first := b.begin()
	if b.begin() != first {
		t.Error("calls that begin together have contexts of their own")
	}
	b.until = time.Now().Add(-time.Second)
	before := time.Now()
	next := b.begin()
	if next == first {
		t.Fatal("a later call shares the context of an earlier one")
	}
	end, bounds := next.Deadline()
	if !bounds || end.Before(before.Add(b.most)) || end.After(time.Now().Add(b.most)) {
		t.Errorf("the first call of a part ends at %v", end)
	}
	if left := end.Sub(b.until); left != b.most-b.most/sharedParts {
		t.Errorf("the last call of a part may take %v", left)
	}
	if first.Err() != nil {
		t.Error("an earlier call ended with its part")
	}
}
