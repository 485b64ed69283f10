package main

import (
	"io"
	"net/url"
	"strings"
)

// redactor is a writer that passes a secret on as "xxxxx", whoever wrote it: a
// library's error that quotes its URL, for example.
type redactor struct {
	w       io.Writer
	secrets *strings.Replacer
}

// redactURL is w without the password of the URL address.
func redactURL(w io.Writer, address string) io.Writer {
	if r := passwordReplacer(address); r != nil {
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

// redactError is err without the password of the URL address.
func redactError(err error, address string) error {
	r := passwordReplacer(address)
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

// passwordReplacer finds the password without parsing the whole URL, for it is
// needed most where the URL is wrong. The password is replaced where it stands
// behind its user's name or in front of the host, not wherever the same letters
// occur: it may well be "guest".
func passwordReplacer(address string) *strings.Replacer {
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
	const hidden = "xxxxx"
	pairs := []string{":" + password, ":" + hidden, password + "@", hidden + "@"}
	if plain, err := url.PathUnescape(password); err == nil && plain != password {
		pairs = append(pairs, ":"+plain, ":"+hidden, plain+"@", hidden+"@")
	}
	return strings.NewReplacer(pairs...)
}
