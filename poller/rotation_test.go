package poller

import (
	"fmt"
	"testing"
)

// Every member of a rotation gets a turn, whatever is added, removed or does not fit.
func TestRotation(t *testing.T) {
	var r rotation[int]
	looks := 7
	if _, found := r.next(&looks, func(int) bool { return true }); found || r.has(1) || r.len() != 0 || looks != 7 {
		t.Fatal("an empty one has members")
	}
	for i := range 5 {
		r.add(i)
	}
	if r.add(3); r.len() != 5 {
		t.Error("a member is added twice")
	}
	r.remove(1)
	r.remove(1)
	var got []int
	for i := range 6 {
		if i == 2 {
			r.add(9)
		}
		x, _ := r.next(&looks, func(x int) bool { return x != 4 })
		got = append(got, x)
	}
	if want := "[0 2 3 0 2 9]"; fmt.Sprint(got) != want || fmt.Sprint(r.members()) != "[3 4 0 2 9]" || looks != 0 {
		t.Errorf("their turns are %v, want %s; then in turn %v, with %d looks left", got, want, r.members(), looks)
	}
	if x, found := r.next(&looks, func(int) bool { return true }); !found || x != 3 || looks != -1 {
		t.Errorf("the next one is %d, with %d looks left", x, looks)
	}
	looks = 4
	if _, found := r.next(&looks, func(int) bool { looks--; return false }); found || looks != 0 || fmt.Sprint(r.members()) != "[2 9 3 4 0]" {
		t.Errorf("%d looks are left, and in turn %v", looks, r.members())
	}
}
