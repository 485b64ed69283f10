package client_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/postdate/postdate/client"
)

// Changes set a failure channel, leave it, or remove it.
func TestChangesOfFailureChannels(t *testing.T) {
	var got string
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = string(body)
		io.WriteString(w, `{"scheduleId":"a","status":"PENDING","failureChannel":"inbox:failed"}`)
	}))
	defer front.Close()
	c, ctx := open(t, client.Config{Servers: []string{front.URL}}), patient(t)
	failed, none, paused := "inbox:failed", "", true
	for _, test := range []struct {
		to               *string
		message, channel string
	}{
		{nil, `{"paused":true}`, `{"channel":"inbox:a","paused":true}`},
		{&failed, `{"paused":true,"failureChannel":"inbox:failed"}`, `{"channel":"inbox:a","paused":true,"failureChannel":"inbox:failed"}`},
		{&none, `{"paused":true,"failureChannel":null}`, `{"channel":"inbox:a","paused":true,"failureChannel":null}`},
	} {
		if _, err := c.Patch(ctx, "a", client.Change{Paused: &paused, FailureChannel: test.to}); err != nil || got != test.message {
			t.Errorf("the message's change is %s, want %s: %v", got, test.message, err)
		}
		set, err := c.ChangeChannel(ctx, client.ChannelChange{Channel: "inbox:a", Paused: &paused, FailureChannel: test.to})
		if err != nil || got != test.channel || set.FailureChannel != failed {
			t.Errorf("the channel's change is %s, want %s: %+v, %v", got, test.channel, set, err)
		}
	}
	m := client.Message{Channel: "inbox:a", ScheduleID: "a", FailureChannel: failed, Payload: []byte("1")}
	const want = `{"scheduleId":"a","channel":"inbox:a","failureChannel":"inbox:failed","payload":1}`
	if _, err := c.Schedule(ctx, m); err != nil || got != want {
		t.Errorf("the message is %s, want %s: %v", got, want, err)
	}
}
