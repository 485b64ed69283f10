package oidctest_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/postdate/postdate/internal/oidctest"
)

const (
	page     = "https://node.example/console/"
	verifier = "a-verifier-of-43-characters-or-more-of-which-nobody-knows"
)

// browser follows no redirect: a page's address is nobody's here.
var browser = http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

func challenge() string {
	hash := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(hash[:])
}

// rig is an issuer with a client.
func rig(t *testing.T, change func(*oidctest.Client)) *oidctest.Issuer {
	t.Helper()
	s := oidctest.New(t)
	s.Publish(oidctest.KeyFor(t, jose.ES256, "a"))
	c := oidctest.Client{ID: "console", Redirect: page}
	change(&c)
	s.Register(c)
	return s
}

// asks is a page's request for a login.
func asks() url.Values {
	return url.Values{"client_id": {"console"}, "redirect_uri": {page}, "response_type": {"code"}, "state": {"s t"}, "nonce": {"n"},
		"scope": {"openid sched:r"}, "audience": {"postdate"}, "code_challenge": {challenge()}, "code_challenge_method": {"S256"}}
}

// back sends a browser to log in, and returns the parameters with which it comes back to the page.
func back(t *testing.T, s *oidctest.Issuer, method string, q url.Values) url.Values {
	t.Helper()
	status, header, body := send(t, method, s.URL+"/authorize?"+q.Encode(), "")
	to, ok := strings.CutPrefix(header.Get("Location"), page+"?")
	if status != http.StatusSeeOther || !ok {
		t.Fatalf("it was answered %d %v %s", status, header, body)
	}
	got, err := url.ParseQuery(to)
	if err != nil || got.Get("state") != "s t" || got.Get("iss") != s.URL {
		t.Fatalf("it comes back with %v, %v", got, err)
	}
	return got
}

// send sends a form, or nothing, as a page of the client's origin does.
func send(t *testing.T, method, address, form string) (int, http.Header, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Origin", "https://node.example")
	if form != "" {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	a, err := browser.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, a.Header, string(text)
}

// tokens are what a page gets.
type tokens struct {
	Access  string `json:"access_token"`
	ID      string `json:"id_token"`
	Refresh string `json:"refresh_token"`
	Lasts   int    `json:"expires_in"`
	Error   string `json:"error"`
}

// fetch asks for tokens, and wants the answer to be readable for the page.
func fetch(t *testing.T, s *oidctest.Issuer, form url.Values) (got tokens) {
	t.Helper()
	status, header, body := send(t, http.MethodPost, s.URL+"/token", form.Encode())
	if err := json.Unmarshal([]byte(body), &got); err != nil || (status == http.StatusOK) != (got.Error == "") {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	if header.Get("Access-Control-Allow-Origin") != "https://node.example" || header.Get("Cache-Control") != "no-store" {
		t.Errorf("the page cannot read it, or keeps it: %v", header)
	}
	return got
}

func redeem(code string) url.Values {
	return url.Values{"grant_type": {"authorization_code"}, "client_id": {"console"}, "redirect_uri": {page}, "code": {code}, "code_verifier": {verifier}}
}

func claimsOf(t *testing.T, token string) (c oidctest.Claims) {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("%q is no token", token)
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(payload, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLogin(t *testing.T) {
	s := rig(t, func(c *oidctest.Client) { c.Claims = oidctest.Claims{"scope": "admin", "tenant": nil} })
	got := fetch(t, s, redeem(back(t, s, http.MethodGet, asks()).Get("code")))
	access, id := claimsOf(t, got.Access), claimsOf(t, got.ID)
	if access["aud"] != "postdate" || access["scope"] != "admin" || access["tenant"] != nil || access["sub"] != "alice" || got.Lasts != 3600 {
		t.Errorf("the access token says %v and is good for %d s", access, got.Lasts)
	}
	if id["aud"] != "console" || id["nonce"] != "n" || id["iss"] != s.URL {
		t.Errorf("the id token says %v", id)
	}
	if asked := s.Asked(); asked.Get("audience") != "postdate" || asked.Get("scope") != "openid sched:r" {
		t.Errorf("the page asked for %v", asked)
	}
	again := url.Values{"grant_type": {"refresh_token"}, "client_id": {"console"}, "refresh_token": {got.Refresh}}
	second := fetch(t, s, again)
	if second.Access == got.Access || second.Access == "" || second.Refresh == got.Refresh {
		t.Errorf("the second tokens are %+v", second)
	}
	if third := fetch(t, s, again); third.Error != "invalid_grant" {
		t.Errorf("a refresh token is good twice: %+v", third)
	}
}

// A person presses the button first, if the client asks.
func TestLoginPage(t *testing.T) {
	s := rig(t, func(c *oidctest.Client) { c.Asks = true })
	status, header, body := send(t, http.MethodGet, s.URL+"/authorize?"+asks().Encode(), "")
	if status != http.StatusOK || !strings.Contains(body, "<button>Log in</button>") || !strings.HasPrefix(header.Get("Content-Type"), "text/html") {
		t.Fatalf("%d %v %s", status, header, body)
	}
	if got := fetch(t, s, redeem(back(t, s, http.MethodPost, asks()).Get("code"))); got.Error != "" {
		t.Errorf("after the button: %+v", got)
	}
}

// No code goes to another page, none is made without a challenge, and none is good without its verifier, or twice.
func TestRefusedLogins(t *testing.T) {
	s := rig(t, func(*oidctest.Client) {})
	with := func(v url.Values, name, value string) url.Values { v.Set(name, value); return v }
	for name, value := range map[string]string{"client_id": "other", "redirect_uri": "https://evil.example/"} {
		if status, header, _ := send(t, http.MethodGet, s.URL+"/authorize?"+with(asks(), name, value).Encode(), ""); status != http.StatusBadRequest || header.Get("Location") != "" {
			t.Errorf("another %s: %d %v", name, status, header)
		}
	}
	for name, value := range map[string]string{"response_type": "token", "code_challenge": "", "code_challenge_method": "plain"} {
		if got := back(t, s, http.MethodGet, with(asks(), name, value)); got.Get("error") == "" || got.Has("code") {
			t.Errorf("%s %q: it comes back with %v", name, value, got)
		}
	}
	for name, value := range map[string]string{"client_id": "other", "redirect_uri": page + "x", "code_verifier": verifier + "x", "code": "none", "grant_type": "password"} {
		code := back(t, s, http.MethodGet, asks()).Get("code")
		if got := fetch(t, s, with(redeem(code), name, value)); got.Error == "" || got.Access != "" {
			t.Errorf("with the %s %q: %+v", name, value, got)
		}
	}
	code := back(t, s, http.MethodGet, asks()).Get("code")
	if got := fetch(t, s, redeem(code)); got.Error != "" {
		t.Fatalf("%+v", got)
	}
	if got := fetch(t, s, redeem(code)); got.Error != "invalid_grant" {
		t.Errorf("a code is good twice: %+v", got)
	}
}

// The page finds the issuer's endpoints, and pages of other origins read nothing.
func TestDescription(t *testing.T) {
	s := rig(t, func(*oidctest.Client) {})
	_, header, body := send(t, http.MethodGet, s.URL+"/.well-known/openid-configuration", "")
	var d map[string]any
	if err := json.Unmarshal([]byte(body), &d); err != nil || d["authorization_endpoint"] != s.URL+"/authorize" || d["token_endpoint"] != s.URL+"/token" || d["code_challenge_methods_supported"].([]any)[0] != "S256" {
		t.Errorf("%s: %v", body, err)
	}
	if header.Get("Access-Control-Allow-Origin") != "https://node.example" {
		t.Errorf("the page cannot read it: %v", header)
	}
	s.Register(oidctest.Client{ID: "console", Redirect: "https://other.example/console/"})
	if _, header, _ := send(t, http.MethodOptions, s.URL+"/token", ""); header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another page can read it: %v", header)
	}
}
