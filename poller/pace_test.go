package poller

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A channel's pace is what it confirmed in the best two consecutive seconds of the last ten,
// however long it was silent in between.
func TestPace(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		var p pace
		confirmed := map[time.Duration]int{} // by second
		now := time.Duration(random.IntN(30_000)) * ms
		for range 100 {
			if random.IntN(3) > 0 {
				n := 1 + random.IntN(100)
				p.add(now, n)
				confirmed[now/time.Second] += n
			}
			second, want := now/time.Second, 0
			for s := second - 8; s <= second; s++ {
				want = max(want, confirmed[s-1]+confirmed[s])
			}
			if got := p.best(now); got != want {
				t.Fatalf("after %s the pace is %d, want %d", now, got, want)
			}
			now += time.Duration(random.IntN(1_500)) * ms
			if random.IntN(20) == 0 {
				now += time.Duration(random.IntN(30)) * time.Second
			}
		}
	}
}
