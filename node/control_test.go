package node

import (
	"context"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/node/machine"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/quota"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// hangingChannels is a store that does not answer what channels have settings.
type hangingChannels struct {
	*storetest.Mem
	asked, answer chan struct{}
}

func (h hangingChannels) Channels(context.Context) ([]store.ChannelSettings, error) {
	close(h.asked)
	<-h.answer
	return nil, nil
}

// Whoever looks into an outage asks for the channels first: the answer must not wait for the
// store.
func TestChannelsWhileTheStoreHangs(t *testing.T) {
	hangs := hangingChannels{storetest.NewMem(1), make(chan struct{}), make(chan struct{})}
	l := &loop{asks: make(chan chan []poller.ChannelView), events: make(chan machine.Event, 1)}
	c := &control{store: hangs, loop: l, quota: quota.NewKeeper(quota.Limits{}, hangs, func() int { return 1 }, time.Now)}
	go func() {
		answer := <-l.asks
		answer <- []poller.ChannelView{{Route: "rabbitmq:orders", Down: true}, {Route: "@acme rabbitmq:orders"}}
	}()
	read := make(chan error)
	go func() { read <- c.read(t.Context()) }()
	<-hangs.asked
	all, err := c.List(t.Context(), postdate.DefaultTenant)
	if err != nil || len(all) != 1 || !all[0].Down {
		t.Errorf("got %+v, %v", all, err)
	}
	close(hangs.answer)
	if err := <-read; err != nil {
		t.Error(err)
	}
}
