package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// fakeChannels keeps the settings, and lists them with made-up numbers.
type fakeChannels struct {
	mu  sync.Mutex
	set map[postdate.Route]store.ChannelSettings
	err error

	perSecond *float64
	pending   *store.PendingCount

	missing []string
	atMost  int // how many it lists at a time; 0: all
}

func (f *fakeChannels) List(_ context.Context, tenant, after string) (list ChannelList, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for route, s := range f.set {
		if route.Tenant() != tenant || string(route.Channel()) <= after {
			continue
		}
		list.Channels = append(list.Channels, Channel{ChannelSettings: s, Down: !s.Paused, InHand: 2, InFlight: 1, Parked: true,
			LastError: "refused", LastErrorAt: testNow, LastErrorNode: "b", PerSecond: f.perSecond, Pending: f.pending, Exact: f.pending != nil})
	}
	slices.SortFunc(list.Channels, func(a, b Channel) int { return strings.Compare(string(a.Route), string(b.Route)) })
	if n := len(list.Channels); f.atMost > 0 && n > f.atMost {
		list.Channels, list.More = list.Channels[:f.atMost], true
	}
	list.Missing = f.missing
	return list, f.err
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
	r.channels.missing = []string{"c"}
	want := `{"channels":[{"channel":"inbox:a","paused":false,"maxPerSecond":2.5,"maxInFlight":4,"state":"down","inHand":2,"inFlight":1,"parked":true,"lastError":"refused","lastErrorAt":"2027-01-30T12:00:00.000Z","lastErrorNode":"b"}],"missing":["c"]}`
	if a := r.send("GET", "/v1/channels", ""); a.status != http.StatusOK || a.body != want {
		t.Errorf("%d %s, want %s", a.status, a.body, want)
	}
}

// What is not known of a channel is absent, and nothing is not the same as 0.
func TestRatesAndPendingOfAChannel(t *testing.T) {
	r := newRig(t)
	r.send("PATCH", "/v1/channels", `{"channel":"inbox:a","paused":true}`)
	perSecond := 0.0
	for _, step := range []struct {
		perSecond *float64
		pending   *store.PendingCount
		want      string
	}{
		{nil, nil, `"parked":true,"lastError"`},
		{&perSecond, nil, `"parked":true,"deliveredPerSecond":0,"lastError"`},
		{nil, &store.PendingCount{}, `"parked":true,"pending":0,"due":0,"exact":true,"lastError"`},
		{&perSecond, &store.PendingCount{All: 7, Due: 5}, `"parked":true,"deliveredPerSecond":12.346,"pending":7,"due":5,"exact":true,"lastError"`},
	} {
		if step.pending != nil && step.pending.All > 0 {
			perSecond = 12.3456
		}
		r.channels.perSecond, r.channels.pending = step.perSecond, step.pending
		if a := r.send("GET", "/v1/channels", ""); a.status != http.StatusOK || !strings.Contains(a.body, step.want) {
			t.Errorf("%d %s, want %s", a.status, a.body, step.want)
		}
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
		{`{"channel":"inbox:a","failureChannel":"inbox:a"}`, "where the message itself goes"},
		{`{"channel":"inbox:a","failureChannel":"x:b"}`, `"pointer":"/failureChannel"`},
		{`{"channel":"inbox:a","failureChannel":""}`, "failureChannel is empty"},
		{`{"channel":"inbox:a","failureChannel":1}`, "a string or null was expected at /failureChannel"},
		{`{"channel":"inbox:a","maxPerSec":1}`, `did you mean \"maxPerSecond\"`},
	} {
		if a := r.send("PATCH", "/v1/channels", c.body); a.status != http.StatusBadRequest || !strings.Contains(a.body, c.want) {
			t.Errorf("%s: %d %s, want 400 and %s", c.body, a.status, a.body, c.want)
		}
	}
}

// Channels come in pages, also while some come and go. Whoever asks for none gets all.
func TestPagesOfChannels(t *testing.T) {
	r := newRig(t)
	want := []string{"inbox:a", "inbox:b", "inbox:c", "inbox:d", "rabbitmq:a/b"}
	for _, name := range want {
		if a := r.send("PATCH", "/v1/channels", `{"channel":"`+name+`","paused":true}`); a.status != 200 {
			t.Error(a.status, a.body)
		}
	}
	type list struct {
		Channels []struct {
			Channel string `json:"channel"`
		} `json:"channels"`
		NextCursor string `json:"nextCursor"`
	}
	read := func(query string) (names []string, next string) {
		t.Helper()
		var l list
		a := r.send("GET", "/v1/channels"+query, "")
		if err := json.Unmarshal([]byte(a.body), &l); a.status != 200 || err != nil {
			t.Fatal(a.status, a.body, err)
		}
		for _, c := range l.Channels {
			names = append(names, c.Channel)
		}
		return names, l.NextCursor
	}
	if names, next := read(""); !slices.Equal(names, want) || next != "" {
		t.Errorf("without a limit: %q, %q", names, next)
	}
	if names, next := read("?limit=5"); !slices.Equal(names, want) || next != "" {
		t.Errorf("as many as there are: %q, %q", names, next)
	}
	for _, r.channels.atMost = range []int{0, 1, 2, 4} { // the nodes' answers may be shorter than a page
		var paged []string
		for query := "?limit=1"; ; {
			names, next := read(query)
			paged = append(paged, names...)
			if next == "" {
				break
			}
			query = "?limit=2&cursor=" + next
		}
		if !slices.Equal(paged, want) {
			t.Errorf("in pages: %q", paged)
		}
	}
	r.channels.atMost = 0
	_, next := read("?limit=2")
	delete(r.channels.set, postdate.RouteOf(postdate.DefaultTenant, "inbox:b")) // where the page ended
	if names, _ := read("?limit=1&cursor=" + next); !slices.Equal(names, []string{"inbox:c"}) {
		t.Errorf("after one that went: %q", names)
	}
	for _, query := range []string{"?limit=0", "?limit=10001", "?limit=x", "?cursor=", "?cursor=x", "?cursor=" + next + "A", "?cursor=" + strings.Repeat("A", 9000),
		"?cursor=" + channelCursor("another", "inbox:a"), "?cursor=" + cursorOf(&store.ListQuery{Tenant: postdate.DefaultTenant}, &store.ListPosition{ScheduleID: "a"})} {
		r.send("GET", "/v1/channels"+query, "").problem(400, InvalidParameter)
	}
	r.send("GET", "/v1/channels?status=PENDING", "").problem(400, InvalidParameter, "known are limit, cursor")
}

// The longest channel has a cursor.
func TestCursorOfALongChannel(t *testing.T) {
	long := "inbox:" + strings.Repeat("x", postdate.ChannelBytesMax-len("inbox:"))
	if got, err := parseChannelCursor("acme", channelCursor("acme", long)); got != long || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
