package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// The pause before all servers are tried again doubles from pauseMin to pauseMax. It is
// shortened by up to a half at random, so that callers do not come back at the same time.
const (
	pauseMin = 100 * time.Millisecond
	pauseMax = 2 * time.Second
)

// retry repeats try as long as that may help and is safe.
func (c *Client) retry(ctx context.Context, repeatable bool, try func() error) error {
	begun, lost, longest := time.Now(), false, pauseMin
	for n := 1; ; n++ {
		err := try()
		if err == nil || !passing(err) {
			return c.since(lost && !conclusive(err), err)
		}
		lost = lost || MayBeDone(err)
		var pause time.Duration // none before the next server
		if n%len(c.servers) == 0 {
			pause = max(longest-rand.N(longest/2), retryAfter(err))
			longest = min(2*longest, pauseMax)
		}
		deadline, limited := ctx.Deadline()
		switch {
		case ctx.Err() != nil, lost && !repeatable, time.Since(begun)+pause > c.config.RetryFor, limited &&
			time.Until(deadline) < pause:
			return c.since(lost, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return c.since(lost, &NoAnswer{Server: c.Server(), Err: fmt.Errorf("%w; the last try: %w", ctx.Err(), err)})
		}
	}
}

// since returns the error of a call whose last try failed with err. If an earlier try was
// lost, the call's outcome is unknown, whatever err says about the last one.
func (c *Client) since(lost bool, err error) error {
	if err == nil || !lost || MayBeDone(err) {
		return err
	}
	return &NoAnswer{Server: c.Server(), MayBeDone: true, Err: fmt.Errorf("an earlier try was lost; the last one: %w",
		err)}
}

// conclusive says whether err decides the outcome of a call even if an earlier try was lost.
func conclusive(err error) bool {
	switch TypeOf(err) {
	case NotFound, Exists, TooLate:
		return true
	}
	return false
}

// passing says whether the same call may succeed later or at another server.
func passing(err error) bool {
	var lost *NoAnswer
	if errors.As(err, &lost) {
		return !errors.Is(err, ErrGarbled)
	}
	var p *Problem
	if !errors.As(err, &p) {
		return false
	}
	switch p.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout, http.StatusInsufficientStorage:
		return true
	}
	return false
}

func retryAfter(err error) time.Duration {
	var p *Problem
	if errors.As(err, &p) {
		return p.RetryAfter
	}
	return 0
}
