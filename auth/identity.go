// Package auth says who a request comes from and what it may do, by the API key that it
// carries. Book decides; Keeper keeps a book that is as new as the store, and changes it.
//
// A key that was revoked on one node is refused there at once, and on the others as soon as
// they look at the store, every [LookEvery]. While the store does not answer, nodes go on with
// the keys that they know: without the store these can do nothing anyway.
package auth

import (
	"slices"
	"strings"

	"github.com/postdate/postdate"
)

// Scope is one thing that a key may be good for.
type Scope string

// The scopes.
const (
	ReadMessages   Scope = "sched:r"    // get and list messages, read inboxes
	WriteMessages  Scope = "sched:w"    // schedule, change and cancel messages
	ChangeChannels Scope = "channels:w" // pause, resume and limit channels
	Operate        Scope = "ops:r"      // see metrics, the cluster and channels
	Admin          Scope = "admin"      // every call, and the keys of all tenants
)

// Scopes are all scopes.
var Scopes = []Scope{ReadMessages, WriteMessages, ChangeChannels, Operate, Admin}

// ParseScope returns the scope with that name.
func ParseScope(name string) (Scope, error) {
	if s := Scope(name); slices.Contains(Scopes, s) {
		return s, nil
	}
	return "", postdate.E(postdate.KindInvalid, "there is no scope %q: there are %s, %s, %s, %s and %s", name,
		ReadMessages, WriteMessages, ChangeChannels, Operate, Admin)
}

// AdminKeyID stands for the operator's own key, --admin-key, in place of a key's id. It is no
// key's id.
const AdminKeyID = "admin-key"

// Identity is who a request comes from. Nobody changes one.
type Identity struct {
	KeyID    string
	Tenant   string
	Scopes   []Scope
	Channels []string // patterns of the channels that it may use; none: all
	// ExpiresAt is when its key or token ends; 0: never.
	ExpiresAt postdate.Time
}

// Credential is what i comes with, for people.
func (i *Identity) Credential() string {
	if user, is := i.Subject(); is {
		return "the token of " + user
	}
	return "the key " + i.KeyID
}

// Subject returns the user whose token i comes with, at most the first 100 bytes of its name; false: i comes with a
// key.
func (i *Identity) Subject() (user string, is bool) { return strings.CutPrefix(i.KeyID, tokenIDPrefix) }

// tokenIDPrefix comes before a token's user in place of a key's id.
const tokenIDPrefix = "oidc:"

// Allows says whether i may do what needs the scope.
func (i *Identity) Allows(need Scope) bool {
	return slices.Contains(i.Scopes, need) || slices.Contains(i.Scopes, Admin)
}

// MayUse says whether i may schedule to a channel, change its settings, or read it if it is an
// inbox. Without authentication i is nil, and may use every channel.
func (i *Identity) MayUse(channel postdate.Channel) bool {
	if i == nil || len(i.Channels) == 0 {
		return true
	}
	return slices.ContainsFunc(i.Channels, func(pattern string) bool { return Match(pattern, string(channel)) })
}

// Match says whether a pattern stands for s. A * in it stands for any characters, / too, or for
// none; every other character stands for itself.
func Match(pattern, s string) bool {
	first, rest, starred := strings.Cut(pattern, "*")
	s, ok := strings.CutPrefix(s, first)
	if !ok || !starred {
		return ok && s == ""
	}
	for {
		part, next, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(s, part)
		}
		// The first place is as good as any: it leaves the most for what follows.
		at := strings.Index(s, part)
		if at < 0 {
			return false
		}
		s, rest = s[at+len(part):], next
	}
}
