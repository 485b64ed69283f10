package api

import (
	"slices"
	"strings"
	"testing"
)

func withConsole(l *Login) func(*Config) {
	return func(c *Config) { c.Console = &Console{Version: "1.2.3", Login: l} }
}

// The console's pages learn without a key how people come in.
func TestConsoleConfig(t *testing.T) {
	login := func(audience string) *Login {
		return &Login{Issuer: "https://login.example/a", ClientID: `the "console"`, Audience: audience, Scope: "openid sched:r"}
	}
	const path = "/console/config.json"
	const known = `"login":{"issuer":"https://login.example/a","clientId":"the \"console\"","scope":"openid sched:r","audience":`
	newRig(t, withConsole(nil)).send("GET", path, "").want(200, `{"keys":false,"version":"1.2.3"}`)
	newRig(t, withConsole(nil), withKeys).send("GET", path, "").want(200, `{"keys":true,"version":"1.2.3"}`)
	a := newRig(t, withConsole(login("postdate")), withKeys).send("GET", path, "")
	a.want(200, `{"keys":true,"version":"1.2.3",`+known+`"postdate"}}`)
	if got := a.header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control: %q", got)
	}
	newRig(t, withConsole(login("https://api.example")), withKeys).send("GET", path, "").want(200,
		`{"keys":true,"version":"1.2.3",`+known+`"https://api.example","resource":"https://api.example"}}`)
	newRig(t, withKeys).send("GET", path, "", bearer(adminKey)).problem(404, NoSuchPath)
}

// Browsers get the page and its files without a key, and a policy that binds them to this node and the issuer.
func TestConsoleFiles(t *testing.T) {
	r := newRig(t, withKeys, withConsole(&Login{Issuer: "https://login.example/a", TokenURL: func() string { return "" }}))
	for _, path := range []string{"/", "/console", "/console/", "/console/now"} {
		a := r.send("GET", path, "")
		policy := a.header.Get("Content-Security-Policy")
		if a.status != 200 || !strings.Contains(a.body, "<title>Postdate</title>") ||
			!strings.Contains(policy, "default-src 'none'; script-src 'self'; style-src 'self';") ||
			!strings.Contains(policy, "connect-src 'self' https://login.example;") {
			t.Errorf("%s: %d, %q, %s", path, a.status, policy, a.body)
		}
	}
	r.send("GET", "/console/assets/index-old.js", "").problem(404, NoSuchPath)
	r.send("POST", "/console", "", bearer(adminKey)).problem(405, MethodNotAllowed)
	r.send("POST", "/", "", bearer(adminKey)).problem(404, NoSuchPath)
	for _, path := range []string{"/", "/console/"} {
		newRig(t).send("GET", path, "").problem(404, NoSuchPath)
	}
}

// Links to the console may be in any page, also to that of a node that asks nobody who they are. Nothing else may be.
func TestLinksToTheConsole(t *testing.T) {
	r := newRig(t, withConsole(nil), func(c *Config) { c.Loopback = true })
	link := []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"}
	for path, want := range map[string]int{
		"/": 200, "/console": 200, "/console/message?id=a": 200, "/v1/messages": 403, "/console/../v1/messages": 403,
		"/console/config.json": 403, "/console/assets/index.js": 403,
		"/console/%2e%2e/v1/messages": 403, "/consoles": 403,
	} {
		if a := r.send("GET", path, "", link...); a.status != want {
			t.Errorf("%s: %d, want %d: %s", path, a.status, want, a.body)
		}
	}
}

// The console connects to the issuer and to its token endpoint, and nothing that an issuer says can widen that.
func TestConnectOrigins(t *testing.T) {
	if got := (&Console{}).connectOrigins(); got != nil {
		t.Errorf("without a login: %q", got)
	}
	for tokenURL, want := range map[string][]string{
		"":                              {"https://login.example:8443"},
		"https://login.example:8443/t":  {"https://login.example:8443"},
		"https://tokens.example/a?b=c":  {"https://login.example:8443", "https://tokens.example"},
		"http://[::1]:80/t":             {"https://login.example:8443", "http://[::1]:80"},
		"https://*/t":                   {"https://login.example:8443"},
		"https://*.example/t":           {"https://login.example:8443"},
		"https://a;script-src/t":        {"https://login.example:8443"},
		"https://a,https:/t":            {"https://login.example:8443"},
		"https://'unsafe-inline'/t":     {"https://login.example:8443"},
		"https://a https:/t":            {"https://login.example:8443"},
		"https://":                      {"https://login.example:8443"},
		"data:text/html,x":              {"https://login.example:8443"},
		"https://user:secret@a.example": {"https://login.example:8443", "https://a.example"},
	} {
		c := Console{Login: &Login{Issuer: "https://login.example:8443/realms/a", TokenURL: func() string { return tokenURL }}}
		if got := c.connectOrigins(); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", tokenURL, got, want)
		}
	}
}
