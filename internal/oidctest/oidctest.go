// Package oidctest is an issuer of JSON Web Tokens for tests: it speaks OpenID Connect Discovery over
// HTTP, with real keys, and lets people log in with a browser. No issuer's product runs in the tests.
package oidctest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Issuer is the server.
type Issuer struct {
	URL  string
	Gets atomic.Int64 // how often its keys were asked for
	Away atomic.Bool  // it answers nothing but 503

	mu    sync.Mutex
	keys  []jose.JSONWebKey
	login login
}

// New starts an issuer, which ends with the test.
func New(t testing.TB) *Issuer {
	s := &Issuer{}
	server := httptest.NewServer(s)
	s.URL = server.URL
	t.Cleanup(server.Close)
	return s
}

// ServeHTTP implements [http.Handler].
func (s *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.Away.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.URL.Path == "/authorize":
		s.authorize(w, r)
	case s.allow(w, r):
	case r.URL.Path == "/.well-known/openid-configuration":
		s.describe(w)
	case r.URL.Path == "/token":
		s.token(w, r)
	case r.URL.Path == "/keys":
		s.Gets.Add(1)
		var set jose.JSONWebKeySet
		for _, k := range s.keys {
			set.Keys = append(set.Keys, k.Public())
		}
		answer(w, http.StatusOK, set)
	default:
		http.NotFound(w, r)
	}
}

// Publish makes these the issuer's keys.
func (s *Issuer) Publish(keys ...jose.JSONWebKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = keys
}

// KeyFor makes a key for an algorithm, with an id.
func KeyFor(t testing.TB, alg jose.SignatureAlgorithm, id string) jose.JSONWebKey {
	t.Helper()
	var key crypto.Signer
	var err error
	switch alg {
	case jose.RS256, jose.PS256:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case jose.ES256:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	return jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(alg), Use: "sig"}
}

// Claims are what a token says.
type Claims = map[string]any

// Claims are those of a good token of tenant acme, until an hour after a time.
func (s *Issuer) Claims(at time.Time) Claims {
	return Claims{"iss": s.URL, "aud": "postdate", "sub": "alice", "tenant": "acme", "scope": "openid sched:w sched:r",
		"exp": at.Add(time.Hour).Unix()}
}

// Sign makes a token.
func Sign(t testing.TB, key jose.JSONWebKey, c Claims) []byte {
	t.Helper()
	token, err := sign(key, c)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func sign(key jose.JSONWebKey, c Claims) ([]byte, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key}, nil)
	if err != nil {
		return nil, err
	}
	payload, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return nil, err
	}
	text, err := signed.CompactSerialize()
	return []byte(text), err
}
