package api

import (
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/auth"
)

// What a call needs besides the scopes that keys have.
const (
	public auth.Scope = "public"  // no key
	anyKey auth.Scope = "any key" // whatever its scopes
)

// identityKey is where a request's identity is among its user values.
const identityKey = "postdate identity"

// identityOf returns who a request comes from; nil if nobody is asked.
func identityOf(ctx *fasthttp.RequestCtx) *auth.Identity {
	i, _ := ctx.UserValue(identityKey).(*auth.Identity)
	return i
}

// tenantOf returns the tenant of a request. No other code decides that.
func (s *Server) tenantOf(ctx *fasthttp.RequestCtx) string {
	if i := identityOf(ctx); i != nil {
		return i.Tenant
	}
	return postdate.DefaultTenant
}

// admit says why a request may not make a call, and notes who it comes from if it may.
func (s *Server) admit(ctx *fasthttp.RequestCtx, need auth.Scope) *Problem {
	if need == public {
		return nil
	}
	tenants := ctx.Request.Header.PeekAll(tenantHeader)
	if s.config.Keys == nil {
		if len(tenants) > 0 {
			return &Problem{Type: BadRequest, Detail: "this node asks nobody who they are, so its only tenant is " +
				postdate.DefaultTenant + ": leave the header " + tenantHeader + " out"}
		}
		return nil
	}
	header := ctx.Request.Header.Peek(fasthttp.HeaderAuthorization)
	i, refusal := s.config.Keys.Authenticate(header)
	if token := auth.TokenIn(header); refusal == auth.Unknown && token != nil && s.config.Tokens != nil {
		var err error
		if i, err = s.config.Tokens.Authenticate(token); err != nil {
			return tokenRefused(ctx, err)
		}
	} else if refusal != auth.Accepted {
		return unauthorized(ctx, i, refusal)
	}
	if need != anyKey && !i.Allows(need) {
		return &Problem{Type: Forbidden, keyID: i.KeyID, Detail: clip(i.Credential()) + " has no scope " +
			string(need) + ", which this call needs: it has " + scopesOf(i) + "; ask an administrator for one with it"}
	}
	if len(tenants) > 1 {
		return &Problem{Type: BadRequest, Detail: "the header " + tenantHeader + " is there twice: leave one"}
	}
	if len(tenants) == 1 {
		var p *Problem
		if i, p = actingFor(i, string(tenants[0])); p != nil {
			return p
		}
	}
	ctx.SetUserValue(identityKey, i)
	return nil
}

// tenantHeader is the header with which an administrator acts for another tenant.
const tenantHeader = "Postdate-Tenant"

// actingFor is an administrator's identity as one of a tenant's.
func actingFor(i *auth.Identity, tenant string) (*auth.Identity, *Problem) {
	if !i.Allows(auth.Admin) {
		return nil, &Problem{Type: Forbidden, keyID: i.KeyID, Detail: clip(i.Credential()) + " has no scope " +
			string(auth.Admin) + ", which the header " + tenantHeader + " needs: leave it out"}
	}
	if err := postdate.CheckTenant(tenant); err != nil {
		return nil, &Problem{Type: BadRequest, Detail: "the header " + tenantHeader + ": " + clip(err.Error())}
	}
	other := *i
	other.Tenant = tenant
	return &other, nil
}

// unauthorized is the answer to a request without an identity. i is that of an expired key.
func unauthorized(ctx *fasthttp.RequestCtx, i *auth.Identity, refusal auth.Refusal) *Problem {
	ctx.Response.Header.Set(fasthttp.HeaderWWWAuthenticate, "Bearer")
	p := &Problem{Type: Unauthorized}
	switch refusal {
	case auth.NoKey:
		p.Detail = "this call needs a key: send it in the header Authorization: Bearer KEY"
	case auth.Malformed:
		p.Detail = "the header Authorization is not understood: write it like Authorization: Bearer KEY"
	case auth.Expired:
		p.keyID = i.KeyID
		p.Detail = "the key " + i.KeyID + " has expired: ask an administrator for another one"
	default:
		p.Detail = "nobody has this key: it is mistyped, or it was revoked"
	}
	return p
}

// tokenRefused is the answer to a request with a token that nobody is known by.
func tokenRefused(ctx *fasthttp.RequestCtx, err error) *Problem {
	if postdate.KindOf(err) == postdate.KindUnavailable {
		return &Problem{Type: Unavailable, Detail: err.Error(), retryAfter: 5}
	}
	ctx.Response.Header.Set(fasthttp.HeaderWWWAuthenticate, `Bearer error="invalid_token"`) // RFC 6750
	return &Problem{Type: Unauthorized, Detail: err.Error()}
}

func scopesOf(i *auth.Identity) string {
	if len(i.Scopes) == 0 {
		return "none"
	}
	names := make([]string, len(i.Scopes))
	for n, s := range i.Scopes {
		names[n] = string(s)
	}
	return strings.Join(names, ", ")
}

// mayUse returns the Problem of a key that is not for a channel. pointer is to the channel in
// the body, if it stands there.
func mayUse(i *auth.Identity, channel postdate.Channel, pointer string) *Problem {
	if i.MayUse(channel) {
		return nil
	}
	return &Problem{Type: Forbidden, Pointer: pointer, keyID: i.KeyID,
		why: "the key is not for the channel " + clip(channel.Shown()), Detail: clip(i.Credential()) +
			" is not for the channel " + clip(string(channel)) + ": it is for " + clip(strings.Join(i.Channels, ", "))}
}
