package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// KeyWish is the API key that CreateKey makes.
type KeyWish struct {
	Tenant   string   `json:"tenant"`
	Scopes   []string `json:"scopes"`             // sched:r, sched:w, channels:w, ops:r, admin
	Channels []string `json:"channels,omitempty"` // patterns like rabbitmq:acme-*; none: all channels
	Expires  string   `json:"expires,omitempty"`  // how long it is good, like 90d or 12h; "": until it is revoked
}

// Key is an API key, without its text.
type Key struct {
	ID         string    `json:"id"`
	Tenant     string    `json:"tenant"`
	Scopes     []string  `json:"scopes"`
	Channels   []string  `json:"channels"`
	CreatedAt  time.Time `json:"createdAt"`
	ExpiresAt  time.Time `json:"expiresAt"`  // zero: never
	LastUsedAt time.Time `json:"lastUsedAt"` // zero: not yet; may be ten seconds behind
}

// NewKey is a key with its text, which cannot be had again.
type NewKey struct {
	Key
	Text string `json:"key"`
}

// Caller is what a client's key or token is for.
type Caller struct {
	Asked     bool      `json:"asked"`     // false: the node asks nobody for a key, and everybody may do everything
	Tenant    string    `json:"tenant"`    // whose messages, inboxes and channels the client's are
	Scopes    []string  `json:"scopes"`    // all that it has, also those that admin stands for
	Channels  []string  `json:"channels"`  // patterns of the channels that it may use; none: all
	KeyID     string    `json:"keyId"`     // admin-key: the operator's own; "": it has no key
	Subject   string    `json:"subject"`   // the user of its token, at most 100 bytes; "": it has none
	ExpiresAt time.Time `json:"expiresAt"` // zero: at no known time
}

// WhoAmI says what the client's key or token is for.
func (c *Client) WhoAmI(ctx context.Context) (Caller, error) {
	return get[Caller](ctx, c, "/v1/whoami")
}

// CreateKey makes an API key. All nodes accept it within a second. If the outcome is unknown
// (see MayBeDone), a key may be there whose text nobody has: list the keys and revoke it.
func (c *Client) CreateKey(ctx context.Context, wish KeyWish) (made NewKey, err error) {
	body, err := json.Marshal(wish)
	if err != nil {
		return made, err
	}
	_, err = c.do(ctx, Call{Method: http.MethodPost, Path: "/v1/keys", Body: body}, &made)
	return made, err
}

// Keys lists the API keys of all tenants, the oldest first.
func (c *Client) Keys(ctx context.Context) ([]Key, error) {
	type list struct {
		Keys []Key `json:"keys"`
	}
	l, err := get[list](ctx, c, "/v1/keys")
	return l.Keys, err
}

// RevokeKey revokes an API key by its id. All nodes refuse it within a second. It is not
// tried again if it may have been done: a second try would find no key.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	_, err := c.Do(ctx, Call{Method: http.MethodDelete, Path: "/v1/keys/" + url.PathEscape(id)})
	return err
}
