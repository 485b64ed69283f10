package auth

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"regexp"
	"slices"
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Wish is the key that an administrator wants.
type Wish struct {
	Tenant    string
	Scopes    []Scope
	Channels  []string      // patterns, see [Match]; none: all channels
	ExpiresAt postdate.Time // 0: never
}

// CheckPattern returns an error if a pattern of channels is none, or can match nothing.
func CheckPattern(pattern string) error {
	switch {
	case pattern == "" || len(pattern) > postdate.APIKeyPatternBytesMax:
		return postdate.E(postdate.KindInvalid, "a pattern of channels has between 1 and %d bytes, not %d",
			postdate.APIKeyPatternBytesMax, len(pattern))
	case !strings.ContainsAny(pattern, ":*"):
		return postdate.E(postdate.KindInvalid, "the pattern %q matches no channel: write it like rabbitmq:acme-*",
			pattern)
	}
	return nil
}

// CheckAdminKey returns an error if a text cannot be the operator's key.
func CheckAdminKey(text string) error {
	if len(text) < postdate.AdminKeyBytesMin || len(text) > postdate.AdminKeyBytesMax {
		return postdate.E(postdate.KindInvalid, "the key has %d characters, and must have between %d and %d: "+
			"make one with `openssl rand -hex 32`",
			len(text), postdate.AdminKeyBytesMin, postdate.AdminKeyBytesMax)
	}
	if !isPlain(text) {
		return postdate.E(postdate.KindInvalid, "the key has a space or a character that is not ASCII: "+
			"make one with `openssl rand -hex 32`")
	}
	return nil
}

// isPlain says whether a text is of ASCII, without spaces.
func isPlain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// cutKey matches keys' texts, and those of which the end is missing.
var cutKey = regexp.MustCompile(`^pd_[0-9a-z]{12}(_|$)`)

// CheckKey returns an error if a text can be no key: neither one that Create made nor the
// operator's.
func CheckKey(text string) error {
	if len(text) < postdate.AdminKeyBytesMin || cutKey.MatchString(text) && len(text) != keyBytes || !isPlain(text) {
		return postdate.E(postdate.KindInvalid, "this is not a whole key: it is one word of at least %d characters, "+
			"like the pd_ID_SECRET that \"postdate keys create\" prints", postdate.AdminKeyBytesMin)
	}
	return nil
}

// IDOf returns the id in a key's text, or a text that is none as it is.
func IDOf(text string) string {
	if rest, ok := strings.CutPrefix(text, keyPrefix); ok {
		id, _, _ := strings.Cut(rest, "_")
		return id
	}
	return text
}

// Create makes a key, and returns it with its text, which nobody can show again. Any node
// accepts it as soon as it has looked. With an error of KindUnknown the key may exist; its id
// is returned too.
func (k *Keeper) Create(ctx context.Context, w Wish) (key store.APIKey, text string, err error) {
	id, secret := draw(idBytes, 36), draw(secretBytes, 62)
	key = store.APIKey{
		ID: id, Tenant: w.Tenant, Channels: w.Channels, CreatedAt: k.c.Now(), ExpiresAt: w.ExpiresAt,
		SecretHash: sha256.Sum256([]byte(secret)),
	}
	for _, s := range w.Scopes {
		key.Scopes = append(key.Scopes, string(s))
	}
	if err := k.c.Store.CreateKey(ctx, key); err != nil {
		return key, "", err
	}
	k.change(func(keys map[string]*entry) { keys[id] = entryOf(&key) })
	return key, keyPrefix + id + "_" + secret, nil
}

// Revoke deletes a key, and this node refuses it from now on. If the outcome is unknown, the next
// look tells.
func (k *Keeper) Revoke(ctx context.Context, id string) error {
	err := k.c.Store.RevokeKey(ctx, id)
	if kind := postdate.KindOf(err); err == nil || kind == postdate.KindUnknown || kind == postdate.KindNotFound {
		k.change(func(keys map[string]*entry) { delete(keys, id) })
	}
	return err
}

// List returns all keys, the oldest first. Uses on other nodes may be missing for [NoteEvery].
func (k *Keeper) List(ctx context.Context) ([]store.APIKey, error) {
	_ = k.note(ctx) // a list without the latest uses is better than none
	all, err := k.c.Store.Keys(ctx)
	slices.SortFunc(all, func(a, b store.APIKey) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return all, err
}

const alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// draw returns n random characters of the first so many of the alphabet, each as likely as any
// other.
func draw(n, of int) string {
	text := make([]byte, 0, n)
	fair := byte(256 / of * of) // bytes from here on would make some characters likelier
	for len(text) < n {
		var b [64]byte
		_, _ = rand.Read(b[:]) // it never fails
		for _, c := range b {
			if c < fair && len(text) < n {
				text = append(text, alphabet[int(c)%of])
			}
		}
	}
	return string(text)
}
