package main

import (
	"io"
	"net/url"
	"strings"

	"github.com/postdate/postdate/node"
)

// redactor is a writer that replaces secrets with "xxxxx", whoever wrote them: for example a
// library's error that quotes its URL.
type redactor struct {
	w       io.Writer
	secrets *strings.Replacer
}

// secrets are the secrets in a node's settings, which no log may show.
type secrets struct {
	urls  []string // whose passwords are secret
	words []string
}

// secretsOf lists the secrets of a node's settings.
func secretsOf(c node.Config) secrets {
	words := append([]string{c.AdminKey, c.Kafka.Password}, c.GossipKeys...)
	for _, entry := range c.Webhook.Secrets {
		// Without its place: the secret may stand without it. An entry that is not understood is
		// secret as a whole.
		if secret := entry[max(0, strings.LastIndex(entry, "whsec_")):]; secret != "whsec_" {
			words = append(words, secret)
		}
	}
	return secrets{urls: []string{c.RabbitMQ, c.Store}, words: words}
}

// redact returns w with the secrets replaced.
func (s secrets) redact(w io.Writer) io.Writer {
	if r := s.replacer(); r != nil {
		return &redactor{w: w, secrets: r}
	}
	return w
}

// Write writes p, which must be whole lines; loggers write whole lines.
func (r *redactor) Write(p []byte) (int, error) {
	if _, err := r.secrets.WriteString(r.w, string(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// redactError returns err with the secrets replaced.
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

// hidden replaces what must not be shown.
const hidden = "xxxxx"

// replacer returns nil if there are no secrets.
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

// passwordPairs finds the password without parsing the whole URL, because hiding it matters
// most when the URL is wrong. The password is replaced only after its user's name or before the
// host, not wherever the same letters occur: it may be "guest".
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
