package auth

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/oidctest"
)

// tokens has read the keys of an issuer.
func tokens(t testing.TB, s *oidctest.Issuer, change ...func(*Issuer)) *Tokens {
	t.Helper()
	c := Issuer{URL: s.URL, Audience: "postdate", TenantClaim: "tenant", ScopeClaim: "scope",
		Now: func() postdate.Time { return now }, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	for _, f := range change {
		f(&c)
	}
	k := NewTokens(c)
	if !k.read(t.Context(), 0) {
		t.Fatal("the keys were not read")
	}
	return k
}

func wantRefused(t *testing.T, k *Tokens, token []byte, words string) {
	t.Helper()
	i, err := k.Authenticate(token)
	if i != nil || postdate.KindOf(err) != postdate.KindInvalid || !strings.Contains(err.Error(), words) {
		t.Errorf("got %+v, %v; want it refused with %q", i, err, words)
	}
}

func TestTokens(t *testing.T) {
	for _, alg := range []jose.SignatureAlgorithm{jose.RS256, jose.PS256, jose.ES256, jose.EdDSA} {
		t.Run(string(alg), func(t *testing.T) {
			s := oidctest.New(t)
			key := oidctest.KeyFor(t, alg, "a")
			s.Publish(key)
			k := tokens(t, s)
			for range 2 { // the second time it is remembered
				i, err := k.Authenticate(oidctest.Sign(t, key, s.Claims(now.Std())))
				if err != nil || i.Tenant != "acme" || i.KeyID != "oidc:alice" || i.Credential() != "the token of alice" ||
					!slices.Equal(i.Scopes, []Scope{WriteMessages, ReadMessages}) || !i.MayUse("rabbitmq:any") {
					t.Fatalf("got %+v, %v", i, err)
				}
			}
		})
	}
}

func TestRefusedTokens(t *testing.T) {
	s := oidctest.New(t)
	key, other := oidctest.KeyFor(t, jose.RS256, "a"), oidctest.KeyFor(t, jose.RS256, "a")
	s.Publish(key)
	k := tokens(t, s)
	for name, test := range map[string]struct {
		change oidctest.Claims
		words  string
	}{
		"another issuer":   {oidctest.Claims{"iss": "https://other.example"}, "not of the issuer"},
		"another audience": {oidctest.Claims{"aud": "billing"}, "expected audience"},
		"no audience":      {oidctest.Claims{"aud": nil}, "expected audience"},
		"expired":          {oidctest.Claims{"exp": now.Std().Unix() - 1}, "expired"},
		"no expiry":        {oidctest.Claims{"exp": nil}, "expired"},
		"not yet":          {oidctest.Claims{"nbf": now.Std().Add(time.Hour).Unix()}, "before the nbf"},
		"no subject":       {oidctest.Claims{"sub": nil}, "no claim sub"},
		"no tenant":        {oidctest.Claims{"tenant": nil}, "which names the tenant"},
		"tenant, a number": {oidctest.Claims{"tenant": 7}, "which names the tenant"},
		"tenant, odd":      {oidctest.Claims{"tenant": "a/b"}, "forbidden character"},
	} {
		t.Run(name, func(t *testing.T) {
			c := s.Claims(now.Std())
			for k, v := range test.change {
				if c[k] = v; v == nil {
					delete(c, k)
				}
			}
			wantRefused(t, k, oidctest.Sign(t, key, c), test.words)
		})
	}
	good := string(oidctest.Sign(t, key, s.Claims(now.Std())))
	parts := strings.Split(good, ".")
	encode := base64.RawURLEncoding.EncodeToString
	der, err := json.Marshal(key.Public()) // a key that is public is no secret to sign with
	if err != nil {
		t.Fatal(err)
	}
	wantRefused(t, k, []byte(encode([]byte(`{"alg":"none"}`))+"."+parts[1]+"."), "no JSON Web Token")
	wantRefused(t, k, oidctest.Sign(t, jose.JSONWebKey{Key: der, KeyID: "a", Algorithm: "HS256"}, s.Claims(now.Std())), "no JSON Web Token")
	wantRefused(t, k, oidctest.Sign(t, other, s.Claims(now.Std())), "signature")
	wantRefused(t, k, []byte(parts[0]+"."+encode([]byte(`{"iss":"`+s.URL+`","tenant":"b","exp":4000000000}`))+"."+parts[2]), "signature")
	wantRefused(t, k, []byte("a.b.c"), "no JSON Web Token")
	wantRefused(t, k, []byte(good+strings.Repeat("x", tokenBytesMax)), "more than")
	if s.Gets.Load() != 1 {
		t.Errorf("the issuer was asked for its keys %d times", s.Gets.Load())
	}
}

func TestClaims(t *testing.T) {
	s := oidctest.New(t)
	key := oidctest.KeyFor(t, jose.ES256, "a")
	s.Publish(key)
	k := tokens(t, s, func(c *Issuer) { c.TenantClaim, c.ScopeClaim = "/org/id", "/realm~1access/roles" })
	c := s.Claims(now.Std())
	c["org"], c["realm/access"] = oidctest.Claims{"id": "globex"}, oidctest.Claims{"roles": []any{"admin", 7, "offline"}}
	i, err := k.Authenticate(oidctest.Sign(t, key, c))
	if err != nil || i.Tenant != "globex" || !slices.Equal(i.Scopes, []Scope{Admin}) {
		t.Errorf("got %+v, %v", i, err)
	}
	wantRefused(t, k, oidctest.Sign(t, key, s.Claims(now.Std())), "/org/id")
}

// A token that was verified ends when it expires, and when its key is withdrawn.
func TestVerifiedTokensEnd(t *testing.T) {
	s := oidctest.New(t)
	first, second := oidctest.KeyFor(t, jose.RS256, "a"), oidctest.KeyFor(t, jose.RS256, "b")
	s.Publish(first)
	at := now
	k := tokens(t, s, func(c *Issuer) { c.Now = func() postdate.Time { return at } })
	token := oidctest.Sign(t, first, s.Claims(now.Std()))
	for range 2 {
		if _, err := k.Authenticate(token); err != nil {
			t.Fatal(err)
		}
	}
	at = now.Add(time.Hour + time.Millisecond)
	wantRefused(t, k, token, "expired")
	at = now
	s.Publish(second)
	k.read(t.Context(), 0)
	if _, err := k.Authenticate(oidctest.Sign(t, second, s.Claims(now.Std()))); err != nil {
		t.Errorf("with the new key: %v", err)
	}
	k.readAt = time.Time{}
	wantRefused(t, k, token, `no key "a"`)
}

// A token with a new key is accepted at once. Tokens with keys that nobody has do not make the
// node ask the issuer more often than it may, and nobody is refused for what is not known.
func TestNewKeys(t *testing.T) {
	s := oidctest.New(t)
	first, second := oidctest.KeyFor(t, jose.ES256, "a"), oidctest.KeyFor(t, jose.ES256, "b")
	s.Publish(first)
	k := tokens(t, s)
	k.readAt = time.Time{} // long ago
	s.Publish(first, second)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := k.Authenticate(oidctest.Sign(t, second, s.Claims(now.Std()))); err != nil {
				t.Errorf("with the new key: %v", err)
			}
		})
	}
	all.Wait()
	for i := range 100 {
		c := s.Claims(now.Std())
		c["jti"] = i
		_, err := k.Authenticate(oidctest.Sign(t, oidctest.KeyFor(t, jose.ES256, fmt.Sprint("nobody's-", i)), c))
		if postdate.KindOf(err) != postdate.KindUnavailable {
			t.Fatalf("with a key that nobody has: %v", err)
		}
	}
	if n := s.Gets.Load(); n != 2 {
		t.Errorf("the issuer was asked for its keys %d times, want 2", n)
	}
}

// While the issuer is away, tokens with known keys are accepted, and nobody is refused.
func TestIssuerAway(t *testing.T) {
	s := oidctest.New(t)
	key := oidctest.KeyFor(t, jose.EdDSA, "a")
	s.Publish(key)
	k := tokens(t, s)
	s.Away.Store(true)
	k.read(t.Context(), 0)
	if _, err := k.Authenticate(oidctest.Sign(t, key, s.Claims(now.Std()))); err != nil {
		t.Errorf("with a known key: %v", err)
	}
	other := NewTokens(k.c)
	_, err := other.Authenticate(oidctest.Sign(t, key, s.Claims(now.Std())))
	if postdate.KindOf(err) != postdate.KindUnavailable || !strings.Contains(err.Error(), "could not be read yet") {
		t.Errorf("before any key was read: %v", err)
	}
	s.Away.Store(false)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { other.Run(ctx); close(ended) }()
	for deadline := time.Now().Add(time.Minute); err != nil; time.Sleep(time.Millisecond) {
		if _, err = other.Authenticate(oidctest.Sign(t, key, s.Claims(now.Std()))); time.Now().After(deadline) {
			t.Fatalf("after the issuer is back: %v", err)
		}
	}
	cancel()
	<-ended
}

func TestRememberedTokensAreBounded(t *testing.T) {
	k := NewTokens(Issuer{})
	for i := range 3 * tokensKept {
		k.remember([32]byte{byte(i), byte(i >> 8), byte(i >> 16)}, &verified{})
	}
	if n := len(k.verified[0]) + len(k.verified[1]); n > 2*tokensKept || n < tokensKept {
		t.Errorf("%d tokens are kept", n)
	}
}

// Nothing but what the issuer signed is accepted. The key is the same in all of the fuzzer's processes.
func FuzzTokens(f *testing.F) {
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	key := jose.JSONWebKey{Key: private, KeyID: "a", Algorithm: "EdDSA"}
	s := &oidctest.Issuer{URL: "https://issuer.example"}
	k := NewTokens(Issuer{URL: s.URL, Audience: "postdate", TenantClaim: "tenant", ScopeClaim: "scope",
		Now: func() postdate.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	k.keys.Store(&keySet{[]jose.JSONWebKey{key.Public()}})
	k.readAt = time.Now().Add(time.Hour) // nobody is asked for more keys
	good := oidctest.Sign(f, key, s.Claims(now.Std()))
	f.Add(good)
	f.Add([]byte("a.b.c"))
	f.Add(append([]byte("eyJhbGciOiJub25lIn0"), good[strings.IndexByte(string(good), '.'):]...))
	f.Fuzz(func(t *testing.T, token []byte) {
		i, err := k.Authenticate(token)
		if err == nil && (i.Tenant != "acme" || i.KeyID != "oidc:alice") || (err == nil) != (i != nil) {
			t.Errorf("%q: %+v, %v", token, i, err)
		}
	})
}

// Keys of a kind that is not known, short ones, and those for encryption are passed over, and do not
// hide the others. A set without a usable key, or one over http://, is none.
func TestKeysOfAnIssuer(t *testing.T) {
	private := oidctest.KeyFor(t, jose.RS256, "good")
	forEncryption := oidctest.KeyFor(t, jose.ES256, "enc")
	good := private.Public()
	forEncryption = forEncryption.Public()
	forEncryption.Use = "enc"
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	short := jose.JSONWebKey{Key: small.Public(), KeyID: "short", Algorithm: "RS256"}
	texts := []json.RawMessage{[]byte(`{"kty":"AKP","alg":"ML-DSA-44","kid":"new","pub":"AAAA"}`), []byte(`7`)}
	for _, k := range []jose.JSONWebKey{forEncryption, short, good, oidctest.KeyFor(t, jose.EdDSA, "private")} {
		text, err := k.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
	}
	if keys := usable(texts); len(keys) != 1 || keys[0].KeyID != "good" {
		t.Errorf("usable are %+v", keys)
	}
	for address, good := range map[string]bool{"https://login.example": true, "http://127.0.0.1:8": true, "http://localhost/x": true,
		"http://login.example": false, "http://localhost.evil.example": false, "login.example": false, "file:///keys": false} {
		if err := CheckIssuer(address); (err == nil) != good {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// An issuer that is misspelt, or that is none, is said to be so, with the address that was asked, and
// at no more length than that takes.
func TestIssuerMisspelt(t *testing.T) {
	s := oidctest.New(t)
	s.Publish(oidctest.KeyFor(t, jose.ES256, "a"))
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, strings.Repeat("no such page ", 10_000))
	}))
	t.Cleanup(page.Close)
	for address, words := range map[string]string{
		s.URL + "/": "did not match the issuer URL returned by provider (\\\"" + s.URL + "\\\")",
		page.URL:    page.URL + "/.well-known/openid-configuration: 404",
	} {
		var said strings.Builder
		k := NewTokens(Issuer{URL: address, Now: func() postdate.Time { return now }, Log: slog.New(slog.NewTextHandler(&said, nil))})
		if k.read(t.Context(), 0) {
			t.Errorf("%s: the keys were read", address)
		}
		if got := said.String(); !strings.Contains(got, words) || len(got) > 1_000 {
			t.Errorf("%s: the log says %.1000s", address, got)
		}
	}
}

// The issuer's keys may move: where they are is asked again.
func TestKeysMove(t *testing.T) {
	s, key := oidctest.New(t), oidctest.KeyFor(t, jose.ES256, "a")
	s.Publish(key)
	k := tokens(t, s)
	k.keysURL += "/former"
	if k.read(t.Context(), 0) {
		t.Fatal("the keys were read from where they are not")
	}
	if !k.read(t.Context(), 0) {
		t.Error("the keys were not found again")
	}
}

// Where the issuer gives out tokens is known once it was asked, and stays known while it is away. What a page could not
// safely ask is left out.
func TestTokenURL(t *testing.T) {
	s := oidctest.New(t)
	s.Publish(oidctest.KeyFor(t, jose.ES256, "a"))
	k := NewTokens(Issuer{URL: s.URL, Now: func() postdate.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	if got := k.TokenURL(); got != "" {
		t.Errorf("before the issuer is asked: %q", got)
	}
	k.read(t.Context(), 0)
	s.Away.Store(true)
	k.read(t.Context(), 0)
	if got := k.TokenURL(); got != s.URL+"/token" {
		t.Errorf("it is %q", got)
	}
	var page *httptest.Server
	page = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":"%[1]s/keys","token_endpoint":"http://elsewhere.example/token"}`, page.URL)
	}))
	t.Cleanup(page.Close)
	k = NewTokens(Issuer{URL: page.URL, Now: func() postdate.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	k.read(t.Context(), 0)
	if k.keysURL == "" && k.tokenURL.Load() == nil || k.TokenURL() != "" {
		t.Errorf("over http:// of elsewhere it is %q", k.TokenURL())
	}
}

// BenchmarkTokens is the cost of a token that is remembered.
func BenchmarkTokens(b *testing.B) {
	s, key := oidctest.New(b), oidctest.KeyFor(b, jose.RS256, "a")
	s.Publish(key)
	k := tokens(b, s)
	token := oidctest.Sign(b, key, s.Claims(now.Std()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Authenticate(token); err != nil {
			b.Fatal(err)
		}
	}
}
