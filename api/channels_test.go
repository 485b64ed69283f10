package api

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// fakeChannels keeps the settings, and lists them with made-up numbers.
type fakeChannels struct {
	mu  sync.Mutex
	set map[postdate.Route]store.ChannelSettings
	err error
}

func (f *fakeChannels) List(_ context.Context, tenant string) (all []Channel, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for route, s := range f.set {
		if route.Tenant() != tenant {
			continue
		}
		all = append(all, Channel{ChannelSettings: s, Down: !s.Paused, InHand: 2, InFlight: 1, Parked: true, LastError: "refused"})
	}
	return all, f.err
}

func (f *fakeChannels) Change(_ context.Context, route postdate.Route, change func(*store.ChannelSettings)) (store.ChannelSettings, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.set[route]
	s.Route = route
	if f.err == nil {
		change(&s)
		f.set[route] = s
	}
	return s, f.err
}

// A change keeps the settings that it does not name, and answers with all settings.
func TestChangeOfAChannel(t *testing.T) {
	r := newRig(t)
	for _, step := range []struct{ body, want string }{
		{`{"channel":"inbox:a","paused":true}`, `{"channel":"inbox:a","paused":true,"maxPerSecond":0,"maxInFlight":0}`},
		{`{"channel":"inbox:a","maxPerSecond":2.5}`, `{"channel":"inbox:a","paused":true,"maxPerSecond":2.5,"maxInFlight":0}`},
		{`{"channel":"inbox:a","paused":false,"maxInFlight":4}`, `{"channel":"inbox:a","paused":false,"maxPerSecond":2.5,"maxInFlight":4}`},
	} {
		if a := r.send("PATCH", "/v1/channels", step.body); a.status != http.StatusOK || a.body != step.want {
			t.Errorf("%s: %d %s, want %s", step.body, a.status, a.body, step.want)
		}
	}
	want := `{"channels":[{"channel":"inbox:a","paused":false,"maxPerSecond":2.5,"maxInFlight":4,"state":"down","inHand":2,"inFlight":1,"parked":true,"lastError":"refused"}]}`
	if a := r.send("GET", "/v1/channels", ""); a.status != http.StatusOK || a.body != want {
		t.Errorf("%d %s, want %s", a.status, a.body, want)
	}
}

func TestWrongChangesOfAChannel(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct{ body, want string }{
		{`{"paused":true}`, "channel"},
		{`{"channel":"inbox:a"}`, "nothing to change"},
		{`{"channel":"inbox:a","paused":"yes"}`, "true or false was expected at /paused"},
		{`{"channel":"inbox:a","maxPerSecond":-1}`, "maxPerSecond must be between"},
		{`{"channel":"inbox:a","maxPerSecond":1e300}`, "maxPerSecond must be between"},
		{`{"channel":"inbox:a","maxInFlight":-1}`, "maxInFlight must be between"},
		{`{"channel":"inbox:a","maxPerSec":1}`, `did you mean \"maxPerSecond\"`},
	} {
		if a := r.send("PATCH", "/v1/channels", c.body); a.status != http.StatusBadRequest || !strings.Contains(a.body, c.want) {
			t.Errorf("%s: %d %s, want 400 and %s", c.body, a.status, a.body, c.want)
		}
	}
}
