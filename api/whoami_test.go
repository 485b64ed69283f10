package api

import (
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/internal/oidctest"
)

const everyScope = `"scopes":["sched:r","sched:w","channels:w","ops:r","admin"]`

// A caller learns what its key or token is for, in the order of the document, and nothing that is secret.
func TestWhoAmI(t *testing.T) {
	issuer, key := oidctest.New(t), oidctest.KeyFor(t, jose.ES256, "a")
	issuer.Publish(key)
	r := newRig(t, withKeys, func(c *Config) {
		c.Tokens = auth.NewTokens(auth.Issuer{URL: issuer.URL, Audience: "postdate", TenantClaim: "tenant", ScopeClaim: "scope",
			Now: c.Now, Log: c.Log})
	})
	some := r.keyFor(auth.Wish{Tenant: "acme", Scopes: []auth.Scope{auth.WriteMessages, auth.ReadMessages}, Channels: []string{"inbox:a*", "*:b"},
		ExpiresAt: testNow.Add(time.Hour)})
	shown := `{"asked":true,"tenant":"acme","scopes":["sched:r","sched:w"],"channels":["inbox:a*","*:b"],"keyId":"` + some[3:15] + `","expiresAt":"2027-01-30T13:00:00.000Z"}`
	r.send("GET", "/v1/whoami", "", bearer(some)).want(200, shown)
	if strings.Contains(shown, some[16:]) {
		t.Error("it shows the key's secret")
	}
	admin := r.key("beta", auth.Admin)
	r.send("GET", "/v1/whoami", "", bearer(admin)).want(200, `{"asked":true,"tenant":"beta",`+everyScope+`,"channels":[],"keyId":"`+admin[3:15]+`"}`)
	r.send("GET", "/v1/whoami", "", bearer(adminKey)).want(200, `{"asked":true,"tenant":"default",`+everyScope+`,"channels":[],"keyId":"admin-key"}`)
	r.send("GET", "/v1/whoami", "", bearer(adminKey), "Postdate-Tenant: acme").want(200, `{"asked":true,"tenant":"acme",`+everyScope+`,"channels":[],"keyId":"admin-key"}`)

	claims := issuer.Claims(testNow.Std())
	token := func(change oidctest.Claims) string {
		for name, value := range change {
			claims[name] = value
		}
		return bearer(string(oidctest.Sign(t, key, claims)))
	}
	r.send("GET", "/v1/whoami", "", token(nil)).want(200, `{"asked":true,"tenant":"acme","scopes":["sched:r","sched:w"],"channels":[],"subject":"alice","expiresAt":"2027-01-30T13:00:00.000Z"}`)
	r.send("GET", "/v1/whoami", "", token(oidctest.Claims{"scope": "openid", "sub": strings.Repeat("x", 300), "exp": 1e15})).want(200,
		`{"asked":true,"tenant":"acme","scopes":[],"channels":[],"subject":"`+strings.Repeat("x", 100)+`","expiresAt":"9999-12-31T23:59:59.999Z"}`)

	open := newRig(t)
	open.send("GET", "/v1/whoami", "").want(200, `{"asked":false,"tenant":"default",`+everyScope+`,"channels":[]}`)
}
