package api

import (
	"context"
	"reflect"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/quota"
	"github.com/postdate/postdate/store"
)

// Tenants lets administrators list tenants and change their limits.
type Tenants interface {
	// ListTenants returns the tenants that have settings or pending messages, and others, sorted by
	// name.
	ListTenants(ctx context.Context, others []string) ([]Tenant, error)
	// ChangeTenant applies f to a tenant's settings, for all nodes, and returns it as it is then.
	ChangeTenant(ctx context.Context, tenant string, f func(*store.TenantSettings)) (Tenant, error)
}

// Tenant is a tenant with the limits that hold for it and what it has pending.
type Tenant struct {
	Name string
	quota.Limits
	Set   store.TenantSettings // of these, what an administrator set for it
	Usage store.Usage
}

// weightMax is the greatest weight.
const weightMax = 1000

// change is a member of a merge patch (RFC 7396): absent, null, or a value.
type change[T any] struct {
	given bool
	value *T // nil: null
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (c *change[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	c.given = true
	return json.UnmarshalDecode(dec, &c.value)
}

// to puts the change into a setting.
func (c change[T]) to(setting **T) {
	if c.given {
		*setting = c.value
	}
}

// tenantBody is the body that changes a tenant's settings.
type tenantBody struct {
	RequestsPerSecond change[float64] `json:"requestsPerSecond"`
	MessagesPerSecond change[float64] `json:"messagesPerSecond"`
	PendingMax        change[int64]   `json:"pendingMax"`
	BytesMax          change[int64]   `json:"bytesMax"`
	ChannelsMax       change[int64]   `json:"channelsMax"`
	Weight            change[int]     `json:"weight"`
}

var tenantFields = fieldsOf(reflect.TypeFor[tenantBody]())

func (s *Server) getTenants(ctx *fasthttp.RequestCtx) *Problem {
	if p := noQuery(ctx); p != nil {
		return p
	}
	storeCtx := s.calls.begin()
	var withKeys []string
	if s.config.Keys != nil {
		keys, err := s.config.Keys.List(storeCtx)
		if err != nil {
			return s.failed(ctx, "list tenants", err, "")
		}
		for i := range keys {
			withKeys = append(withKeys, keys[i].Tenant)
		}
	}
	all, err := s.config.Tenants.ListTenants(storeCtx, withKeys)
	if err != nil {
		return s.failed(ctx, "list tenants", err, "")
	}
	b := append(begin(ctx), `{"tenants":[`...)
	for i := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendTenant(b, &all[i])
	}
	return finish(ctx, fasthttp.StatusOK, append(b, `]}`...))
}

func (s *Server) patchTenant(ctx *fasthttp.RequestCtx) *Problem {
	if p := noQuery(ctx); p != nil {
		return p
	}
	name, p := pathName(ctx, "tenant", postdate.CheckTenant)
	if p != nil {
		return p
	}
	raw, p := s.bodyOf(ctx, s.singleBytesMax(), contentTypeJSON, "application/merge-patch+json")
	if p != nil {
		return p
	}
	var body tenantBody
	if p := decodeBody(raw, &body); p != nil {
		return p
	}
	if p := body.check(); p != nil {
		return p
	}
	storeCtx := s.calls.begin()
	t, err := s.config.Tenants.ChangeTenant(storeCtx, name, body.apply)
	if err != nil {
		return s.failed(ctx, "change a tenant", err, "")
	}
	s.audit.did(ctx, "a tenant's limits were changed", "tenant", name, "limits", t.Limits)
	return finish(ctx, fasthttp.StatusOK, appendTenant(begin(ctx), &t))
}

func (b *tenantBody) check() *Problem {
	for _, p := range []*Problem{
		checkRate("requestsPerSecond", b.RequestsPerSecond.value),
		checkRate("messagesPerSecond", b.MessagesPerSecond.value),
		checkMost("pendingMax", b.PendingMax.value),
		checkMost("bytesMax", b.BytesMax.value),
		checkMost("channelsMax", b.ChannelsMax.value),
	} {
		if p != nil {
			return p
		}
	}
	if w := b.Weight.value; w != nil && (*w < 1 || *w > weightMax) {
		return fieldProblem("/weight", invalid("weight must be between 1 and %d, or null for 1", weightMax))
	}
	if *b == (tenantBody{}) {
		return fieldProblem("", invalid("nothing to change: give requestsPerSecond, messagesPerSecond, pendingMax, "+
			"bytesMax, channelsMax or weight"))
	}
	return nil
}

func checkRate(name string, v *float64) *Problem {
	if v == nil {
		return nil
	}
	if err := quota.CheckRate(name, *v); err != nil {
		return fieldProblem("/"+name, invalid("%w; null is the default", err))
	}
	return nil
}

func checkMost(name string, v *int64) *Problem {
	if v != nil && *v < 0 {
		return fieldProblem("/"+name, invalid("%s must be at least 0 (no limit), or null for the default", name))
	}
	return nil
}

func (b *tenantBody) apply(s *store.TenantSettings) {
	b.RequestsPerSecond.to(&s.RequestsPerSecond)
	b.MessagesPerSecond.to(&s.MessagesPerSecond)
	b.PendingMax.to(&s.PendingMax)
	b.BytesMax.to(&s.BytesMax)
	b.ChannelsMax.to(&s.ChannelsMax)
	b.Weight.to(&s.Weight)
}

func appendTenant(b []byte, t *Tenant) []byte {
	b = appendText(append(b, `{"tenant":`...), t.Name)
	b = strconv.AppendFloat(append(b, `,"requestsPerSecond":`...), t.RequestsPerSecond, 'g', -1, 64)
	b = strconv.AppendFloat(append(b, `,"messagesPerSecond":`...), t.MessagesPerSecond, 'g', -1, 64)
	b = strconv.AppendInt(append(b, `,"pendingMax":`...), t.PendingMax, 10)
	b = strconv.AppendInt(append(b, `,"bytesMax":`...), t.BytesMax, 10)
	b = strconv.AppendInt(append(b, `,"channelsMax":`...), t.ChannelsMax, 10)
	b = strconv.AppendInt(append(b, `,"weight":`...), int64(t.Weight), 10)
	b = strconv.AppendInt(append(b, `,"pending":`...), t.Usage.Messages, 10)
	b = strconv.AppendInt(append(b, `,"bytes":`...), t.Usage.Bytes, 10)
	b = strconv.AppendInt(append(b, `,"channels":`...), t.Usage.Channels, 10)
	b = append(b, `,"set":[`...)
	for i, name := range setOf(&t.Set) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, name)
	}
	return append(b, `]}`...)
}

// setOf are the names of what is set.
func setOf(s *store.TenantSettings) (names []string) {
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"requestsPerSecond", s.RequestsPerSecond != nil}, {"messagesPerSecond", s.MessagesPerSecond != nil},
		{"pendingMax", s.PendingMax != nil}, {"bytesMax", s.BytesMax != nil},
		{"channelsMax", s.ChannelsMax != nil}, {"weight", s.Weight != nil},
	} {
		if field.set {
			names = append(names, field.name)
		}
	}
	return names
}

// noTenants is the default: none is known and none can be changed.
type noTenants struct{}

func (noTenants) ListTenants(context.Context, []string) ([]Tenant, error) { return nil, nil }

func (noTenants) ChangeTenant(context.Context, string, func(*store.TenantSettings)) (Tenant, error) {
	return Tenant{}, postdate.E(postdate.KindUnavailable, "this node keeps no settings of tenants")
}
