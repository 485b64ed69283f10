package api

import (
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate/auth"
)

// whoAmI says what the caller's key or token is for.
func (s *Server) whoAmI(ctx *fasthttp.RequestCtx) *Problem {
	if p := noQuery(ctx); p != nil {
		return p
	}
	i := identityOf(ctx)
	if i == nil { // nobody is asked
		i = &auth.Identity{Scopes: auth.Scopes}
	}
	b := append(begin(ctx), `{"asked":`...)
	b = strconv.AppendBool(b, s.config.Keys != nil)
	b = appendMember(b, "tenant", s.tenantOf(ctx))
	b = appendTextList(b, "scopes", allowedTo(i))
	b = appendTextList(b, "channels", i.Channels)
	if user, is := i.Subject(); is {
		b = appendMember(b, "subject", user)
	} else if i.KeyID != "" {
		b = appendMember(b, "keyId", i.KeyID)
	}
	if i.ExpiresAt != 0 {
		b = appendTime(b, "expiresAt", i.ExpiresAt)
	}
	return finish(ctx, fasthttp.StatusOK, append(b, '}'))
}

// allowedTo lists the scopes that a caller has, also those that admin stands for.
func allowedTo(i *auth.Identity) (names []string) {
	for _, scope := range auth.Scopes {
		if i.Allows(scope) {
			names = append(names, string(scope))
		}
	}
	return names
}
