package webhook

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postdate/postdate/publisher"
)

const (
	answerBytesMax = 64 << 10        // read at most of the head, and of the body
	wordsBytesMax  = 200             // of the body go into a reason at most
	answerTime     = 2 * time.Second // to read the body: the status already says enough
	retryAfterMax  = time.Hour
)

// answered turns a receiver's answer into a result. It calls cancel if reading takes too long.
func answered(resp *http.Response, cancel func()) publisher.Result {
	stop := time.AfterFunc(answerTime, cancel)
	defer stop.Stop()
	// A connection can be reused only if its body was read to the end.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, answerBytesMax))
	r := publisher.Result{Outcome: publisher.Refused, Reason: statusWords(resp, body)}
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return publisher.Result{Outcome: publisher.Confirmed}
	case code == http.StatusGone:
		r.Permanent = true
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		r.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), time.Now())
	case code == http.StatusBadGateway, code == http.StatusGatewayTimeout, code == 520, code == 524:
		r.Outcome = publisher.Unknown
	}
	return r
}

// statusWords returns the status, and the beginning of what the receiver says about it.
func statusWords(resp *http.Response, body []byte) string {
	words := strconv.Itoa(resp.StatusCode)
	if text := http.StatusText(resp.StatusCode); text != "" {
		words += " " + text
	}
	if to := resp.Header.Get("Location"); resp.StatusCode/100 == 3 {
		words += ": redirects are not followed"
		if to != "" {
			words += ", name the target itself: " + plain([]byte(to))
		}
		return words
	}
	if said := plain(body); said != "" {
		words += ": " + said
	}
	return words
}

// plain returns the beginning of a text, on one line.
func plain(text []byte) string {
	text = text[:min(len(text), wordsBytesMax)]
	for len(text) > 0 { // drop a character that was cut in half
		if r, size := utf8.DecodeLastRune(text); r != utf8.RuneError || size > 1 {
			break
		}
		text = text[:len(text)-1]
	}
	if !utf8.Valid(text) {
		return ""
	}
	printable := func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}
	return strings.Join(strings.Fields(strings.Map(printable, string(text))), " ")
}

// retryAfter reads the value of a Retry-After header: seconds, or a date.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 63); err == nil {
		return time.Duration(min(seconds, uint64(retryAfterMax/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), retryAfterMax)
	}
	return 0
}

// failed turns an exchange without an answer into a result.
func failed(ctx context.Context, err error, written bool) publisher.Result {
	var no *forbidden
	if errors.As(err, &no) {
		return publisher.Result{Outcome: publisher.Refused, Reason: no.Error()}
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the URL: the message names it
	}
	reason := words(err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		reason = "the receiver has not answered in time"
	case ctx.Err() != nil:
		reason = "the node stopped waiting"
	}
	if written {
		return publisher.Result{Outcome: publisher.Unknown, Reason: reason + ", and may have got the message"}
	}
	return publisher.Result{Outcome: publisher.Down, Reason: "the receiver cannot be reached: " + reason}
}

// words returns an error's text without the addresses of the receiver, of this node and of its
// name server, and without the names in the receiver's certificate.
func words(err error) string {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		why := "its name server does not answer"
		if dns.IsNotFound {
			why = "there is no such host"
		}
		return "the name " + dns.Name + " cannot be resolved: " + why
	}
	return publisher.WithoutPlaces(err.Error())
}
