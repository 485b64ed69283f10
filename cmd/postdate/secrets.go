package main

import (
	"io"
	"net/url"
	"strings"

	"github.com/postdate/postdate/node"
)

// redactor is a writer that passes a secret on as "xxxxx", whoever wrote it: a
// library's error that quotes its URL, for example.
type redactor struct {
	w       io.Writer
	secrets *strings.Replacer
}

// secrets are what a node's settings hold and no log may show.
type secrets struct {
	urls  []string // their passwords
	words []string
}

// secretsOf lists the secrets of a node's settings.
func secretsOf(c node.Config) secrets {
	return secrets{urls: []string{c.RabbitMQ, c.Store}, words: append([]string{c.GossipKey, c.Kafka.Password}, c.Webhook.Secrets...)}
}

// redact is w without the secrets.
func (s secrets) redact(w io.Writer) io.Writer {
	if r := s.replacer(); r != nil {
		return &redactor{w: w, secrets: r}
	}
	return w
}

// Write writes p, which holds whole lines, as loggers write them.
func (r *redactor) Write(p []byte) (int, error) {
	if _, err := r.secrets.WriteString(r.w, string(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// redactError is err without the secrets.
func (s secrets) redactError(err error) error {
	r := s.replacer()
	if err == nil || r == nil {
		return err
	}
	return &redactedError{err: err, text: r.Replace(err.Error())}
}

type redactedError struct {
	err  error
	text string
}

func (e *redactedError) Error() string { return e.text }

func (e *redactedError) Unwrap() error { return e.err }

// hidden stands for what must not be shown.
const hidden = "xxxxx"

// replacer is nil where there are no secrets.
func (s secrets) replacer() *strings.Replacer {
	var pairs []string
	for _, u := range s.urls {
		pairs = append(pairs, passwordPairs(u)...)
	}
	for _, w := range s.words {
		if w != "" {
			pairs = append(pairs, w, hidden)
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	return strings.NewReplacer(pairs...)
}

// passwordPairs finds the password without parsing the whole URL, for it is
// needed most where the URL is wrong. The password is replaced where it stands
// behind its user's name or in front of the host, not wherever the same letters
// occur: it may well be "guest".
func passwordPairs(address string) []string {
	_, rest, ok := strings.Cut(address, "://")
	if !ok {
		return nil
	}
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return nil
	}
	_, password, ok := strings.Cut(rest[:at], ":")
	if !ok || password == "" {
		return nil
	}
	pairs := []string{":" + password, ":" + hidden, password + "@", hidden + "@"}
	if plain, err := url.PathUnescape(password); err == nil && plain != password {
		pairs = append(pairs, ":"+plain, ":"+hidden, plain+"@", hidden+"@")
	}
	return pairs
}
