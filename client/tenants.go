package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// Tenant is a tenant with the limits that hold for it, of which 0 is none, and what it has pending.
type Tenant struct {
	Tenant            string  `json:"tenant"`
	RequestsPerSecond float64 `json:"requestsPerSecond"`
	MessagesPerSecond float64 `json:"messagesPerSecond"`
	PendingMax        int64   `json:"pendingMax"`
	BytesMax          int64   `json:"bytesMax"` // of payloads
	ChannelsMax       int64   `json:"channelsMax"`
	Weight            int     `json:"weight"` // its share of delivery in relation to other tenants

	Pending  int64 `json:"pending"`  // messages
	Bytes    int64 `json:"bytes"`    // of their payloads
	Channels int64 `json:"channels"` // that they go to

	Set []string `json:"set"` // which of the limits are set for it, by their names; others are the default
}

// TenantChange is what ChangeTenant changes. Nil fields leave a limit as it is, and 0 is no limit.
type TenantChange struct {
	RequestsPerSecond *float64 `json:"requestsPerSecond,omitempty"`
	MessagesPerSecond *float64 `json:"messagesPerSecond,omitempty"`
	PendingMax        *int64   `json:"pendingMax,omitempty"`
	BytesMax          *int64   `json:"bytesMax,omitempty"`
	ChannelsMax       *int64   `json:"channelsMax,omitempty"`
	Weight            *int     `json:"weight,omitempty"`
}

// Tenants lists the tenants that have limits of their own, settings of channels, pending messages or
// keys, by name.
func (c *Client) Tenants(ctx context.Context) ([]Tenant, error) {
	type list struct {
		Tenants []Tenant `json:"tenants"`
	}
	l, err := get[list](ctx, c, "/v1/tenants")
	return l.Tenants, err
}

// ChangeTenant changes a tenant's limits on all nodes, and returns the tenant as it is then. To give
// one back to the nodes' default, send null for it with Do.
func (c *Client) ChangeTenant(ctx context.Context, tenant string, change TenantChange) (t Tenant, err error) {
	body, err := json.Marshal(change)
	if err != nil {
		return t, err
	}
	_, err = c.do(ctx, Call{Method: http.MethodPatch, Path: "/v1/tenants/" + url.PathEscape(tenant), Body: body}, &t)
	return t, err
}
