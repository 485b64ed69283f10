package node_test

import (
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/oidctest"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/store/storetest"
)

// A node accepts the tokens of an issuer: each is of its tenant, and does what its scopes allow. No
// key of an operator is needed beside.
func TestTokensOpenANode(t *testing.T) {
	s, key := oidctest.New(t), oidctest.KeyFor(t, jose.ES256, "a")
	s.Publish(key)
	token := func(change oidctest.Claims) string {
		c := s.Claims(time.Now())
		for k, v := range change {
			c[k] = v
		}
		return string(oidctest.Sign(t, key, c))
	}
	c := config(t)
	c.HTTP = "0.0.0.0:0"
	c.OIDC.Issuer, c.OIDC.Audience = s.URL, "postdate"
	n, _ := start(t, c)
	acme, globex := clientWith(t, n, token(nil)), clientWith(t, n, token(oidctest.Claims{"tenant": "globex"}))
	awaitAccess(t, acme, true) // once the node has read the issuer's keys
	m := client.Message{ScheduleID: "same", Channel: "inbox:all", ExecutionTime: time.Now().Add(time.Hour), Payload: []byte(`1`)}
	if _, err := acme.Schedule(patient(t), m); err != nil {
		t.Fatal(err)
	}
	want := func(what string, err error, want client.ProblemType) {
		t.Helper()
		if client.TypeOf(err) != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	_, err := globex.Get(patient(t), "same")
	want("another tenant's message", err, client.NotFound)
	_, err = clientWith(t, n, token(oidctest.Claims{"scope": []string{"sched:r"}})).Schedule(patient(t), m)
	want("without the scope", err, client.Forbidden)
	_, err = clientWith(t, n, token(oidctest.Claims{"scope": "openid"})).Get(patient(t), "same")
	want("without any scope", err, client.Forbidden)
	_, err = clientWith(t, n, token(oidctest.Claims{"aud": "billing"})).Get(patient(t), "same")
	want("a token for another service", err, client.Unauthorized)
	_, err = clientWith(t, n, token(oidctest.Claims{"exp": time.Now().Add(-time.Second).Unix()})).Get(patient(t), "same")
	want("an expired token", err, client.Unauthorized)
	_, err = clientWith(t, n, "").Get(patient(t), "same")
	want("nobody", err, client.Unauthorized)
	_, err = clientWith(t, n, "   ").Get(patient(t), "same")
	want("an empty key", err, client.Unauthorized)
	made := keyFor(t, clientWith(t, n, token(oidctest.Claims{"scope": "admin"})), "acme")
	awaitAccess(t, clientWith(t, n, made.Text), true) // an administrator by token makes a key
}

func TestWrongIssuers(t *testing.T) {
	for want, o := range map[string]node.OIDC{
		"--oidc-issuer is missing":                        {Audience: "postdate"},
		"--oidc-audience is missing":                      {Issuer: "https://login.example.com"},
		"is not a URL":                                    {Issuer: "login.example.com", Audience: "a"},
		"must be https://":                                {Issuer: "http://login.example.com", Audience: "a", TenantClaim: "t", ScopeClaim: "s"},
		"--oidc-client-id: --oidc-issuer is missing":      {ClientID: "c"},
		"--oidc-client-scope: --oidc-client-id is missin": {Issuer: "https://login.example.com", Audience: "a", ClientScopes: []string{"openid"}},
		"--oidc-client-id \"c\\n\" has a character":       {Issuer: "https://login.example.com", Audience: "a", TenantClaim: "t", ScopeClaim: "s", ClientID: "c\n"},
		`--oidc-client-scope "openid \"x" has a charac`:   {Issuer: "https://login.example.com", Audience: "a", TenantClaim: "t", ScopeClaim: "s", ClientID: "c", ClientScopes: []string{"openid", `"x`}},
		"--oidc-tenant-claim and --oidc-scope-claim must": {Issuer: "https://login.example.com", Audience: "a", ScopeClaim: "s"},
	} {
		c := config(t)
		c.OIDC = o
		storetest.Refused(t, c.Validate(), postdate.KindInvalid, want)
	}
}
