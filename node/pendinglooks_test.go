package node

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// slowCount takes a second to count what is pending, which is one more each time, and hangs for a minute at the fourth.
type slowCount struct {
	store.Messages
	times *int64
}

func (s slowCount) Pending(context.Context, string, postdate.Time) (store.Pending, error) {
	if *s.times++; *s.times == 4 {
		time.Sleep(time.Minute)
	}
	time.Sleep(time.Second)
	return store.Pending{Channels: map[postdate.Channel]store.PendingCount{"inbox:x": {All: *s.times}}}, nil
}

// While a slow store counts again, a list that people watch has what it counted last, for some seconds.
func TestASlowLookLeavesTheEarlierOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var background sync.WaitGroup
		defer background.Wait()
		p := newPendingLooks(slowCount{times: new(int64)}, func() postdate.Time { return 0 }, t.Context(), &background)
		for _, each := range []struct {
			at   time.Duration
			want int64 // how often the store had counted; 0: nothing is known
		}{
			{0, 0}, {2 * time.Second, 1}, {6 * time.Second, 1}, {8 * time.Second, 2}, {time.Minute, 0}, {62 * time.Second, 3},
			{66 * time.Second, 3}, {69 * time.Second, 3}, {71 * time.Second, 0}, {90 * time.Second, 0},
		} {
			time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(each.at)))
			found := p.look("default").result(t.Context())
			if found == nil {
				found = &store.Pending{}
			}
			if got := found.Channels["inbox:x"].All; got != each.want {
				t.Errorf("at %v the list has what was counted at the look %d, want %d", each.at, got, each.want)
			}
		}
	})
}
