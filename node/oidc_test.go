package node_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
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

// A page of the console learns from the node how to log in at the issuer, and gets a token that the node accepts.
func TestLogInToTheConsole(t *testing.T) {
	s := oidctest.New(t)
	s.Publish(oidctest.KeyFor(t, jose.ES256, "a"))
	c := config(t)
	c.Version = "1.2.3"
	c.OIDC.Issuer, c.OIDC.Audience, c.OIDC.ClientID, c.OIDC.ClientScopes = s.URL, "postdate", "console", []string{"openid", "sched:r"}
	n, _ := start(t, c)
	page := "http://" + n.Addr() + "/console/"
	s.Register(oidctest.Client{ID: "console", Redirect: page, Claims: oidctest.Claims{"sub": "bob", "scope": "sched:r"}})
	status, text := call(t, page+"config.json", http.MethodGet, "", "")
	want := `{"keys":true,"version":"1.2.3","login":{"issuer":"` + s.URL + `","clientId":"console","scope":"openid sched:r","audience":"postdate"}}`
	if status != http.StatusOK || text != want {
		t.Fatalf("%d %s, want %s", status, text, want)
	}
	const verifier = "a-verifier-of-43-characters-or-more-of-which-nobody-knows"
	hash := sha256.Sum256([]byte(verifier))
	asks := url.Values{"client_id": {"console"}, "redirect_uri": {page}, "response_type": {"code"}, "scope": {"openid sched:r"}, "audience": {"postdate"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(hash[:])}, "code_challenge_method": {"S256"}}
	browser := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	back, err := browser.Get(s.URL + "/authorize?" + asks.Encode())
	if err != nil {
		t.Fatal(err)
	}
	back.Body.Close()
	to, err := back.Location()
	if err != nil {
		t.Fatal(back.Status, err)
	}
	answer, err := browser.PostForm(s.URL+"/token", url.Values{"grant_type": {"authorization_code"}, "client_id": {"console"}, "redirect_uri": {page},
		"code": {to.Query().Get("code")}, "code_verifier": {verifier}})
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var got struct {
		Token string `json:"access_token"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&got); err != nil || got.Token == "" {
		t.Fatal(answer.Status, err)
	}
	bob := clientWith(t, n, got.Token)
	awaitAccess(t, bob, true) // once the node has read the issuer's keys
	caller, err := bob.WhoAmI(patient(t))
	if err != nil || caller.Subject != "bob" || caller.Tenant != "acme" || !slices.Equal(caller.Scopes, []string{"sched:r"}) || time.Until(caller.ExpiresAt) > time.Hour {
		t.Errorf("the console is %+v, %v", caller, err)
	}
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
