package node

import (
	"cmp"
	"context"
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/auth"
)

// OIDC says whose JSON Web Tokens are accepted besides API keys.
type OIDC struct {
	Issuer      string // its URL; "": nobody's
	Audience    string // what tokens must be for
	TenantClaim string // the claim that names the tenant; a JSON Pointer if it begins with /
	ScopeClaim  string // the claim with the scopes, likewise

	ClientID     string   // of the console, a public client at the issuer; "": nobody logs in there
	ClientScopes []string // what the console asks for; none: openid
}

func (o OIDC) validate() error {
	fault := auth.CheckIssuer(o.Issuer)
	switch {
	case len(o.ClientScopes) > 0 && o.ClientID == "":
		return invalid("--oidc-client-scope: --oidc-client-id is missing: name the client with which people log in")
	case o.Issuer == "" && o.ClientID != "":
		return invalid("--oidc-client-id: --oidc-issuer is missing: say where people log in")
	case o.Issuer == "" && o.Audience == "":
		return nil
	case o.Issuer == "":
		return invalid("--oidc-audience: --oidc-issuer is missing: say whose tokens are accepted")
	case fault != nil:
		return postdate.E(postdate.KindInvalid, "--oidc-issuer %w", fault)
	case o.Audience == "":
		return invalid("--oidc-audience is missing: without it, tokens that the issuer made for other services would " +
			"be accepted; name what tokens for Postdate have in their claim aud")
	case o.TenantClaim == "" || o.ScopeClaim == "":
		return invalid("--oidc-tenant-claim and --oidc-scope-claim must name claims, like tenant and scope")
	case !isPrintable(o.ClientID):
		return invalid("--oidc-client-id %q has a character that no client's id has: take it from the issuer",
			o.ClientID)
	case !isPrintable(o.scope()) || strings.ContainsAny(o.scope(), `"\\`):
		return invalid("--oidc-client-scope %q has a character that no scope has: write them like "+
			"openid,offline_access", o.scope())
	}
	return nil
}

// isPrintable says whether a text is of ASCII that can be printed, spaces too (RFC 6749, VSCHAR).
func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// scope is what the console asks for.
func (o OIDC) scope() string { return cmp.Or(strings.Join(o.ClientScopes, " "), "openid") }

// console is what the console's pages learn before anybody has logged in.
func (n *Node) console() *api.Console {
	c := &api.Console{Version: n.c.Version}
	if o := n.c.OIDC; o.ClientID != "" {
		c.Login = &api.Login{Issuer: o.Issuer, ClientID: o.ClientID, Audience: o.Audience, Scope: o.scope(),
			TokenURL: n.tokens.TokenURL}
	}
	return c
}

// openKeys makes what tells who requests come from, if anybody is asked.
func (n *Node) openKeys(ctx context.Context) error {
	if !n.c.asks() {
		keys, err := n.store.Keys(ctx)
		if err == nil && len(keys) > 0 {
			n.c.Log.Warn("the store has API keys, and nobody is asked for one: give --admin-key", "keys", len(keys))
		}
		return err
	}
	if o := n.c.OIDC; o.Issuer != "" {
		n.tokens = auth.NewTokens(auth.Issuer{URL: o.Issuer, Audience: o.Audience, TenantClaim: o.TenantClaim,
			ScopeClaim: o.ScopeClaim, Now: n.wall, Log: n.c.Log})
	}
	n.keys = auth.NewKeeper(auth.Config{Store: n.store, AdminKey: n.c.AdminKey, Now: n.wall, Log: n.c.Log})
	return n.keys.Look(ctx)
}
