package node

import (
	"context"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/auth"
)

// OIDC says whose JSON Web Tokens are accepted besides API keys.
type OIDC struct {
	Issuer      string // its URL; "": nobody's
	Audience    string // what tokens must be for
	TenantClaim string // the claim that names the tenant; a JSON Pointer if it begins with /
	ScopeClaim  string // the claim with the scopes, likewise
}

func (o OIDC) validate() error {
	fault := auth.CheckIssuer(o.Issuer)
	switch {
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
	}
	return nil
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
