package oidctest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client is a public client, with which people log in from a web page: with an authorization code and PKCE (RFC 6749,
// RFC 7636), and then with a refresh token, which is good once.
type Client struct {
	ID       string
	Redirect string        // where a login ends: an address of the page
	Claims   Claims        // of its access tokens, besides those of [Issuer.Claims]; nil as a value removes one
	Lasts    time.Duration // how long its access tokens are good; 0: an hour
	Asks     bool          // a page with the button "Log in" comes first; else the login is done at once
}

// login is what the issuer knows of logins.
type login struct {
	client  Client
	asked   url.Values
	codes   map[string]grant
	refresh map[string]grant
}

// grant is what somebody who has logged in let the page have.
type grant struct{ scope, nonce, challenge string }

// Register makes c the issuer's only client. Pages of its redirect URI's origin may then fetch from the issuer (CORS).
func (s *Issuer) Register(c Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.login = login{client: c, codes: map[string]grant{}, refresh: map[string]grant{}}
}

// Asked returns the parameters of the last request for a login; nil: there was none.
func (s *Issuer) Asked() url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.login.asked
}

// describe is the issuer's description of itself (OpenID Connect Discovery 1.0).
func (s *Issuer) describe(w http.ResponseWriter) {
	answer(w, http.StatusOK, map[string]any{
		"issuer": s.URL, "jwks_uri": s.URL + "/keys",
		"authorization_endpoint": s.URL + "/authorize", "token_endpoint": s.URL + "/token",
		"response_types_supported":         []string{"code"},
		"grant_types_supported":            []string{"authorization_code", "refresh_token"},
		"code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"none"},
		"authorization_response_iss_parameter_supported": true, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": signatureAlgorithms,
	})
}

// signatureAlgorithms are those of the keys that KeyFor makes.
var signatureAlgorithms = []string{"RS256", "PS256", "ES256", "EdDSA"}

// allow lets pages of the client's origin read an answer, and says whether that is all of it.
func (s *Issuer) allow(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set("Vary", "Origin")
	page, err := url.Parse(s.login.client.Redirect)
	if origin := r.Header.Get("Origin"); err == nil && origin != "" && origin == page.Scheme+"://"+page.Host {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Allow-Headers", "Content-Type")
	}
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
	}
	return r.Method == http.MethodOptions
}

var loginPage = template.Must(template.New("").Parse(`<!doctype html><title>Log in</title>
<form method="post" action="{{.}}"><button>Log in</button></form>
`))

// authorize sends a browser back to the client's page with a code. An answer that must not go there is a 400.
func (s *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.login.asked = q
	c := s.login.client
	if c.ID == "" || q.Get("client_id") != c.ID || q.Get("redirect_uri") != c.Redirect {
		http.Error(w, "there is no such client, or it has another redirect URI", http.StatusBadRequest)
		return
	}
	back := url.Values{"state": q["state"], "iss": {s.URL}}
	hash, err := base64.RawURLEncoding.DecodeString(q.Get("code_challenge"))
	switch {
	case q.Get("response_type") != "code":
		back.Set("error", "unsupported_response_type")
	case q.Get("code_challenge_method") != "S256" || err != nil || len(hash) != sha256.Size:
		back.Set("error", "invalid_request")
	case c.Asks && r.Method != http.MethodPost:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = loginPage.Execute(w, r.URL.RequestURI())
		return
	default:
		code := rand.Text()
		s.login.codes[code] = grant{scope: q.Get("scope"), nonce: q.Get("nonce"), challenge: q.Get("code_challenge")}
		back.Set("code", code)
	}
	http.Redirect(w, r, c.Redirect+"?"+back.Encode(), http.StatusSeeOther)
}

// token gives out tokens for a code, or for a refresh token.
func (s *Issuer) token(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	c := s.login.client
	if r.Method != http.MethodPost || c.ID == "" || r.PostFormValue("client_id") != c.ID {
		answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_client"})
		return
	}
	var g grant
	good := false
	switch r.PostFormValue("grant_type") {
	case "authorization_code":
		g, good = take(s.login.codes, r.PostFormValue("code"))
		hash := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		good = good && base64.RawURLEncoding.EncodeToString(hash[:]) == g.challenge &&
			r.PostFormValue("redirect_uri") == c.Redirect
	case "refresh_token":
		g, good = take(s.login.refresh, r.PostFormValue("refresh_token"))
	default:
		answer(w, http.StatusBadRequest, map[string]string{"error": "unsupported_grant_type"})
		return
	}
	if !good {
		answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	tokens, err := s.tokens(g)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, http.StatusOK, tokens)
}

// tokens makes what a page gets for a grant.
func (s *Issuer) tokens(g grant) (map[string]any, error) {
	if len(s.keys) == 0 {
		return nil, fmt.Errorf("the issuer has no keys: call Publish")
	}
	c, now := s.login.client, time.Now()
	lasts := c.Lasts
	if lasts == 0 {
		lasts = time.Hour
	}
	claims := s.Claims(now)
	claims["exp"] = now.Add(lasts).Unix()
	claims["jti"] = rand.Text() // no two tokens are alike
	for name, value := range c.Claims {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
	access, err := sign(s.keys[0], claims)
	if err != nil {
		return nil, err
	}
	again := rand.Text()
	s.login.refresh[again] = g
	tokens := map[string]any{"access_token": string(access), "token_type": "Bearer", "scope": g.scope,
		"expires_in": int(lasts.Seconds()), "refresh_token": again}
	if !strings.Contains(" "+g.scope+" ", " openid ") {
		return tokens, nil
	}
	says := Claims{"iss": s.URL, "aud": c.ID, "sub": claims["sub"], "iat": now.Unix(), "exp": claims["exp"]}
	if g.nonce != "" {
		says["nonce"] = g.nonce
	}
	id, err := sign(s.keys[0], says)
	tokens["id_token"] = string(id)
	return tokens, err
}

// take returns what a code or refresh token stands for, which is good once.
func take(grants map[string]grant, name string) (g grant, is bool) {
	g, is = grants[name]
	delete(grants, name)
	return g, is
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
