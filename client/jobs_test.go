package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
)

// What would be done twice if it were repeated is not, once its answer is lost: a job begins once, and a purge does not
// say of what it deleted that it was not there.
func TestLostAnswersOfJobs(t *testing.T) {
	var requests atomic.Int32
	front := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		requests.Add(1)
		panic(http.ErrAbortHandler)
	}))
	defer front.Close()
	c := open(t, client.Config{Servers: []string{front.URL}, RetryFor: time.Second})
	for name, call := range map[string]func(context.Context) error{
		"cancel": func(ctx context.Context) error {
			_, err := c.CancelWhere(ctx, client.JobFilter{Label: "a"})
			return err
		},
		"redrive": func(ctx context.Context) error {
			_, err := c.RedriveWhere(ctx, client.JobFilter{Label: "a"})
			return err
		},
		"purge": func(ctx context.Context) error { _, err := c.PurgeWhere(ctx, client.JobFilter{Label: "a"}); return err },
		"ids":   func(ctx context.Context) error { _, err := c.Purge(ctx, "a"); return err },
	} {
		requests.Store(0)
		var lost *client.NoAnswer
		if err := call(patient(t)); !errors.As(err, &lost) || !lost.MayBeDone || requests.Load() != 1 {
			t.Errorf("%s: after %d requests: %v", name, requests.Load(), err)
		}
	}
}
