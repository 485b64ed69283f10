package api

import (
	"context"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/quota"
	"github.com/postdate/postdate/store"
)

// Tenants lets administrators list tenants and change their limits.
type Tenants interface {
	// ListTenants returns the tenants that have settings or pending messages, sorted by name.
	ListTenants(ctx context.Context) ([]Tenant, error)
	// ChangeTenant applies f to a tenant's settings, for all nodes, and returns it as it is then.
	ChangeTenant(ctx context.Context, tenant string, f func(*store.TenantSettings)) (Tenant, error)
}

// Tenant is a tenant with the limits that hold for it and what it has pending.
type Tenant struct {
	Name string
	quota.Limits
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
	storeCtx, cancel := s.storeContext()
	defer cancel()
	all, err := s.config.Tenants.ListTenants(storeCtx)
	if err != nil {
		return s.failed("list tenants", err, "")
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
	storeCtx, cancel := s.storeContext()
	defer cancel()
	t, err := s.config.Tenants.ChangeTenant(storeCtx, name, body.apply)
	if err != nil {
		return s.failed("change a tenant", err, "")
	}
	s.audit.did(ctx, "a tenant's limits were changed", "tenant", name, "limits", t.Limits)
	return finish(ctx, fasthttp.StatusOK, appendTenant(begin(ctx), &t))
}

func (b *tenantBody) check() *Problem {
	for name, v := range map[string]*float64{"requestsPerSecond": b.RequestsPerSecond.value,
		"messagesPerSecond": b.MessagesPerSecond.value} {
		if v != nil && (math.IsNaN(*v) || *v < 0 || *v > rateMax) {
			return fieldProblem("/"+name, invalid("%s must be between 0 (no limit) and %d, or null for the default",
				name, int(rateMax)))
		}
	}
	for name, v := range map[string]*int64{"pendingMax": b.PendingMax.value, "bytesMax": b.BytesMax.value,
		"channelsMax": b.ChannelsMax.value} {
		if v != nil && *v < 0 {
			return fieldProblem("/"+name, invalid("%s must be at least 0 (no limit), or null for the default", name))
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
	return append(b, '}')
}

// paced takes a request of its tenant's rate, and refuses it if there is none left. What nobody needs
// a key for, and what administrators do, has no rate, so that limits can always be raised.
func (s *Server) paced(ctx *fasthttp.RequestCtx, need auth.Scope) *Problem {
	if s.config.Quota == nil || need == public || need == auth.Admin {
		return nil
	}
	pace, err := s.config.Quota.Request(s.tenantOf(ctx))
	if pace != nil {
		h := &ctx.Response.Header
		h.Set("RateLimit-Policy", `"requests";q=`+strconv.Itoa(pace.Burst)+`;w=1`)
		h.Set("RateLimit", `"requests";r=`+strconv.Itoa(pace.Left)+`;t=`+strconv.Itoa(seconds(pace.Full)))
	}
	if err != nil {
		p, _ := storeProblem(err, "")
		return p
	}
	return nil
}

// seconds are a time in whole seconds, rounded up.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// noTenants is the default: none is known and none can be changed.
type noTenants struct{}

func (noTenants) ListTenants(context.Context) ([]Tenant, error) { return nil, nil }

func (noTenants) ChangeTenant(context.Context, string, func(*store.TenantSettings)) (Tenant, error) {
	return Tenant{}, postdate.E(postdate.KindUnavailable, "this node keeps no settings of tenants")
}
