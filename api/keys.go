package api

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/store"
)

// keyBody is the body that makes an API key.
type keyBody struct {
	Tenant    string   `json:"tenant"`
	Scopes    textList `json:"scopes"`
	Channels  textList `json:"channels"`
	Expires   *string  `json:"expires"`
	ExpiresAt *string  `json:"expiresAt"`
}

var keyFields = fieldsOf(reflect.TypeFor[keyBody]())

// keysOff is the answer of a node that asks nobody for a key.
func keysOff() *Problem {
	return &Problem{Type: NotSupported, Detail: "this node asks nobody for a key: " +
		"start it with --admin-key, and manage keys with that"}
}

func (s *Server) getKeys(ctx *fasthttp.RequestCtx) *Problem {
	if p := noQuery(ctx); p != nil {
		return p
	}
	if s.config.Keys == nil {
		return keysOff()
	}
	storeCtx := s.calls.begin()
	all, err := s.config.Keys.List(storeCtx)
	if err != nil {
		return s.keyFailed(ctx, "list keys", "", err, "nothing was changed: repeat the request")
	}
	b := append(begin(ctx), `{"keys":[`...)
	for i := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendKey(b, &all[i]), '}')
	}
	return finish(ctx, fasthttp.StatusOK, append(b, `]}`...))
}

func (s *Server) postKey(ctx *fasthttp.RequestCtx) *Problem {
	if p := refuseHeaders(ctx, "it makes a key each time it comes", "Idempotency-Key"); p != nil {
		return p
	}
	var body keyBody
	if p := s.singleBody(ctx, &body, contentTypeJSON); p != nil {
		return p
	}
	wish, p := body.wish(s.config.Now(), s.config.Kinds)
	if p != nil {
		return p
	}
	if s.config.Keys == nil {
		return keysOff()
	}
	storeCtx := s.calls.begin()
	key, text, err := s.config.Keys.Create(storeCtx, wish)
	if err != nil {
		return s.keyFailed(ctx, "make a key", key.ID, err, "key "+key.ID+" may be there, and nobody can have its "+
			"text. Revoke it (404 means that it was never made), and make another one")
	}
	s.audit.did(ctx, "an API key was made", "key", key.ID, "tenant", key.Tenant, "scopes", key.Scopes,
		"channels", key.Channels, "expiresAt", shownExpiry(key.ExpiresAt))
	b := appendMember(appendKey(begin(ctx), &key), "key", text)
	return finish(ctx, fasthttp.StatusCreated, append(b, '}'))
}

func (s *Server) deleteKey(ctx *fasthttp.RequestCtx) *Problem {
	if p := noQuery(ctx); p != nil {
		return p
	}
	id, p := pathName(ctx, "id", postdate.CheckKeyID)
	if p != nil {
		return p
	}
	if s.config.Keys == nil {
		return keysOff()
	}
	if id == auth.AdminKeyID {
		return parameterProblem("id", invalid("the operator's key cannot be revoked: "+
			"restart the nodes with another --admin-key"))
	}
	storeCtx := s.calls.begin()
	if err := s.config.Keys.Revoke(storeCtx, id); err != nil {
		return s.keyFailed(ctx, "revoke a key", id, err, "the key may be revoked or not. "+
			"Repeat the request; 404 means that it is")
	}
	s.audit.did(ctx, "an API key was revoked", "key", id)
	b := append(begin(ctx), `{"id":`...)
	return finish(ctx, fasthttp.StatusOK, append(appendText(b, id), `,"revoked":true}`...))
}

// keyFailed is failed for calls on keys. unknown says what to do about an unknown outcome.
func (s *Server) keyFailed(ctx *fasthttp.RequestCtx, doing, id string, err error,
	unknown string) *Problem {
	if postdate.KindOf(err) == postdate.KindNotFound {
		return &Problem{Type: NoSuchKey,
			Detail: "there is no key " + id + ": it was never made, or it is revoked already"}
	}
	p := s.failed(ctx, doing, err, "")
	switch p.Type {
	case UnknownOutcome:
		p.Detail = "the store did not answer in time: " + unknown
	case Internal:
		p.Detail = "the node failed in a way that it did not expect, and its log says more: " + unknown
	case Conflict, Exists:
		p.Detail = "the keys were changed by others at the same time; surely nothing was done: repeat the request"
	}
	return p
}

// wish checks the body; kinds are Config.Kinds.
func (b *keyBody) wish(now postdate.Time, kinds []string) (auth.Wish, *Problem) {
	w := auth.Wish{Tenant: b.Tenant, Channels: b.Channels}
	if err := postdate.CheckTenant(b.Tenant); err != nil {
		return w, fieldProblem("/tenant", err)
	}
	if len(b.Scopes) == 0 {
		return w, fieldProblem("/scopes", invalid("scopes is missing: name what the key is for, like [%q, %q]",
			auth.WriteMessages, auth.ReadMessages))
	}
	for i, name := range b.Scopes {
		scope, err := auth.ParseScope(clip(name))
		if err != nil {
			return w, fieldProblem("/scopes/"+strconv.Itoa(i), err)
		}
		if !slices.Contains(w.Scopes, scope) {
			w.Scopes = append(w.Scopes, scope)
		}
	}
	if len(b.Channels) > postdate.APIKeyPatternsMax {
		return w, fieldProblem("/channels", invalid("%d patterns are too many: at most %d are allowed",
			len(b.Channels), postdate.APIKeyPatternsMax))
	}
	for i, pattern := range b.Channels {
		if err := cmp.Or(auth.CheckPattern(pattern), checkKind(pattern, kinds)); err != nil {
			return w, fieldProblem("/channels/"+strconv.Itoa(i), err)
		}
	}
	var p *Problem
	w.ExpiresAt, p = b.end(now)
	return w, p
}

// checkKind returns an error if a pattern matches no channel of these kinds.
func checkKind(pattern string, kinds []string) error {
	first, _, _ := strings.Cut(pattern, "*")
	kind, _, whole := strings.Cut(first, ":")
	for _, k := range kinds {
		if k == kind || !whole && strings.HasPrefix(k, kind) {
			return nil
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	hint := ""
	if meant := Nearest(kind, kinds); meant != "" {
		hint = "; did you mean " + meant + ":?"
	}
	return invalid("the pattern %q matches no channel: they begin with %s: or %s:%s", clip(pattern),
		strings.Join(kinds[:len(kinds)-1], ":, "), kinds[len(kinds)-1], hint)
}

// end is when the key expires; 0: never.
func (b *keyBody) end(now postdate.Time) (postdate.Time, *Problem) {
	switch {
	case b.Expires != nil && b.ExpiresAt != nil:
		return 0, fieldProblem("/expires", invalid("expires and expiresAt exclude each other: give one of them"))
	case b.Expires != nil:
		d, err := parseLifetime(*b.Expires)
		if err == nil && (d <= 0 || d > postdate.DelayMax) {
			err = invalid("expires is %q: it must be more than 0, and at most %d days", clip(*b.Expires),
				daysOf(postdate.DelayMax))
		}
		if err != nil {
			return 0, fieldProblem("/expires", err)
		}
		return now.Add(d), nil
	case b.ExpiresAt != nil:
		at, err := postdate.ParseTime(*b.ExpiresAt)
		if err == nil && at <= now {
			err = invalid("expiresAt %s is past: give a later time", at)
		}
		if err != nil {
			return 0, fieldProblem("/expiresAt", err)
		}
		return at, nil
	}
	return 0, nil
}

var daysShape = regexp.MustCompile(`^\d{1,9}d$`)

// parseLifetime is ParseDuration, and takes whole days like 90d too.
func parseLifetime(s string) (time.Duration, error) {
	if daysShape.MatchString(s) {
		s = "P" + s[:len(s)-1] + "D"
	}
	d, err := ParseDuration(s)
	if err != nil {
		return 0, invalid("%q is not how long a key can live: write it like 90d or 12h", clip(s))
	}
	return d, nil
}

func shownExpiry(at postdate.Time) string {
	if at == 0 {
		return "never"
	}
	return fmt.Sprint(at)
}

// appendKey appends an object with what may be shown of a key, and leaves it open.
func appendKey(b []byte, key *store.APIKey) []byte {
	b = append(b, `{"id":`...)
	b = appendText(b, key.ID)
	b = appendMember(b, "tenant", key.Tenant)
	b = appendTextList(b, "scopes", key.Scopes)
	b = appendTextList(b, "channels", key.Channels)
	b = appendTime(b, "createdAt", key.CreatedAt)
	if key.ExpiresAt != 0 {
		b = appendTime(b, "expiresAt", key.ExpiresAt)
	}
	if key.LastUsedAt != 0 {
		b = appendTime(b, "lastUsedAt", key.LastUsedAt)
	}
	return b
}

// appendTextList appends a member that is an array of strings.
func appendTextList(b []byte, name string, texts []string) []byte {
	b = append(b, `,"`+name+`":[`...)
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, text)
	}
	return append(b, ']')
}
