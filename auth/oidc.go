package auth

import (
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/postdate/postdate"
)

const (
	// IssuerEvery is how often the issuer's keys are read: one that it has withdrawn is accepted
	// for no longer than that.
	IssuerEvery = time.Minute
	// issuerAgain is the shortest time between two reads of the keys, however many tokens come
	// whose keys are not known.
	issuerAgain = 10 * time.Second

	issuerTimeout  = 2 * time.Second // of one read, for which a request may wait
	issuerBytesMax = 1 << 20
	tokensKept     = 4_096 // verified tokens in each of two generations
	tokenBytesMax  = 16 << 10
	rsaBitsMin     = 2048
	subjectShown   = 100 // bytes
)

// signatures are what tokens may be signed with: by a key that only the issuer has.
var signatures = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}

// signatureNames are these as OpenID Connect's library wants them.
var signatureNames = func() (names []string) {
	for _, s := range signatures {
		names = append(names, string(s))
	}
	return names
}()

// Issuer says whose tokens are accepted, and what they must say.
type Issuer struct {
	URL         string // exactly as tokens and the issuer's own description have it
	Audience    string
	TenantClaim string // a claim's name or, if it begins with /, a JSON Pointer (RFC 6901)
	ScopeClaim  string // likewise: a text with spaces between the scopes, or a list
	Now         func() postdate.Time
	Log         *slog.Logger
}

// Tokens knows who sends a JSON Web Token (RFC 7519), by the keys that an issuer publishes
// (OpenID Connect Discovery 1.0). It reads them again and again, so that the issuer can replace
// them. What was verified is remembered for as long as the keys stay the same.
type Tokens struct {
	c        Issuer
	client   http.Client
	keys     atomic.Pointer[keySet] // nil: not read yet
	tokenURL atomic.Pointer[string] // nil: likewise
	reading  sync.Mutex             // held during a read, and guards what follows
	keysURL  string                 // "": not known yet
	readAt   time.Time              // when the last read began
	awaySaid bool

	mu       sync.Mutex // guards what follows
	verified [2]map[[sha256.Size]byte]*verified
}

// keySet has the keys of an issuer at a time. It is never changed.
type keySet struct{ keys []jose.JSONWebKey }

// verified is a token that was found good.
type verified struct {
	identity Identity
	by       *keySet
}

// NewTokens makes a Tokens. It knows no keys until Run has read them.
func NewTokens(c Issuer) *Tokens {
	return &Tokens{c: c, client: http.Client{Timeout: issuerTimeout, Transport: bounded{http.DefaultTransport},
		CheckRedirect: func(to *http.Request, _ []*http.Request) error { return checkURL(to.URL.String()) }}}
}

// CheckIssuer returns an error if an issuer's keys cannot safely be read from its URL.
func CheckIssuer(address string) error {
	if err := checkURL(address); err != nil {
		return postdate.E(postdate.KindInvalid, "%w: write it as the issuer's tokens do, like "+
			"https://login.example.com/realms/main", err)
	}
	return nil
}

// checkURL returns an error if keys cannot safely be read from a URL: over http:// anybody on the
// way can give out keys, but for this machine's own way to itself.
func checkURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return postdate.E(postdate.KindInvalid, "%q is not a URL", address)
	case u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback():
		return postdate.E(postdate.KindInvalid, "%q: over http:// anybody on the way can give out keys; it must be "+
			"https://", address)
	}
	return nil
}

// bounded is a transport whose answers end after issuerBytesMax.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(answer.Body, issuerBytesMax), answer.Body}
	}
	return answer, err
}

// Run reads the issuer's keys until ctx ends.
func (t *Tokens) Run(ctx context.Context) {
	for wait := time.Second; ; {
		if t.read(ctx, 0) {
			wait = IssuerEvery
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			wait = min(2*wait, issuerAgain)
		}
	}
}

// read reads the keys, unless that was begun within a time, and says whether they were read.
func (t *Tokens) read(ctx context.Context, within time.Duration) bool {
	t.reading.Lock()
	defer t.reading.Unlock()
	if within > 0 && time.Since(t.readAt) < within {
		return false
	}
	t.readAt = time.Now()
	keys, err := t.fetch(ctx)
	if err != nil {
		t.keysURL = "" // it may have moved
		if !t.awaySaid && ctx.Err() == nil {
			t.c.Log.Warn("the keys of --oidc-issuer cannot be read: tokens whose keys are known are accepted, others "+
				"are told to come again", "issuer", t.c.URL, "error", err)
		}
		t.awaySaid = true
		return false
	}
	if t.awaySaid {
		t.c.Log.Info("the keys of --oidc-issuer were read", "issuer", t.c.URL)
	}
	t.awaySaid = false
	if old := t.keys.Load(); old == nil || !slices.EqualFunc(old.keys, keys, sameKey) {
		t.keys.Store(&keySet{keys})
	}
	return true
}

func sameKey(a, b jose.JSONWebKey) bool {
	one, err := a.MarshalJSON()
	other, err2 := b.MarshalJSON()
	return err == nil && err2 == nil && string(one) == string(other)
}

// fetch gets the keys from where the issuer says that they are.
func (t *Tokens) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	ctx, cancel := context.WithTimeout(ctx, issuerTimeout)
	defer cancel()
	if t.keysURL == "" {
		p, err := oidc.NewProvider(oidc.ClientContext(ctx, &t.client), t.c.URL)
		if err != nil { // it may quote the whole answer
			return nil, fmt.Errorf("%s/.well-known/openid-configuration: %.300s", strings.TrimSuffix(t.c.URL, "/"),
				err.Error())
		}
		var d struct {
			KeysURL  string `json:"jwks_uri"`
			TokenURL string `json:"token_endpoint"`
		}
		if err := p.Claims(&d); err != nil {
			return nil, err
		}
		if err := checkURL(d.KeysURL); err != nil {
			return nil, fmt.Errorf("what the issuer says of itself: jwks_uri %.300s", err.Error())
		}
		if checkURL(d.TokenURL) != nil {
			d.TokenURL = ""
		}
		t.keysURL = d.KeysURL
		t.tokenURL.Store(&d.TokenURL)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.keysURL, nil)
	if err != nil {
		return nil, err
	}
	answer, err := t.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&set); err != nil {
		return nil, fmt.Errorf("%s answers %s: %w", t.keysURL, answer.Status, err)
	}
	keys := usable(set.Keys)
	if answer.StatusCode != http.StatusOK || len(keys) == 0 {
		return nil, fmt.Errorf("%s answers %s with %d keys for signatures", t.keysURL, answer.Status, len(keys))
	}
	return keys, nil
}

// TokenURL returns where the issuer says that it gives out tokens. It is "" until that is known, and if they could not
// safely be had from there.
func (t *Tokens) TokenURL() string {
	if known := t.tokenURL.Load(); known != nil {
		return *known
	}
	return ""
}

// usable returns the keys that verify signatures. Others are passed over: an issuer may have keys of a
// kind that is not known here.
func usable(texts []json.RawMessage) (keys []jose.JSONWebKey) {
	for _, text := range texts {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(text) != nil || !k.IsPublic() || !k.Valid() || k.Use == "enc" {
			continue
		}
		if of, is := k.Key.(*rsa.PublicKey); is && of.N.BitLen() < rsaBitsMin {
			continue
		}
		keys = append(keys, k)
	}
	return keys
}

// Authenticate says who sends a token. An error of KindInvalid says why the token is refused, and
// one of KindUnavailable that nobody can say now.
func (t *Tokens) Authenticate(token []byte) (*Identity, error) {
	at := t.c.Now()
	now := at.Std()
	keys, hash := t.keys.Load(), sha256.Sum256(token)
	if v := t.remembered(hash); v != nil && v.by == keys && at < v.identity.ExpiresAt {
		return &v.identity, nil
	}
	text, keyID, err := t.inspect(token, now)
	if err != nil {
		return nil, err
	}
	if !keys.has(keyID) {
		read := t.read(context.Background(), issuerAgain)
		switch keys = t.keys.Load(); {
		case keys.has(keyID):
		case read:
			return nil, refused("its issuer has no key %q", keyID)
		case keys == nil:
			return nil, postdate.E(postdate.KindUnavailable, "the token cannot be judged: the keys of --oidc-issuer "+
				"could not be read yet, and the node's log says why")
		default: // it may be newer than what was read last
			return nil, postdate.E(postdate.KindUnavailable, "the token cannot be judged: its key is not known "+
				"yet, and the issuer is asked only once in %s; try again", issuerAgain)
		}
	}
	verifier := oidc.NewVerifier(t.c.URL, keys, &oidc.Config{
		ClientID: t.c.Audience, Now: func() time.Time { return now }, SupportedSigningAlgs: signatureNames,
	})
	good, err := verifier.Verify(context.Background(), text)
	if err != nil {
		return nil, refused("%w", err)
	}
	v := &verified{by: keys}
	if v.identity, err = t.identity(good); err != nil {
		return nil, err
	}
	t.remember(hash, v)
	return &v.identity, nil
}

// inspect looks at what costs little: the form of a token and, before anybody is asked for its
// key, what it says of itself.
func (t *Tokens) inspect(token []byte, now time.Time) (text, keyID string, err error) {
	if len(token) > tokenBytesMax {
		return "", "", refused("it has more than %d bytes", tokenBytesMax)
	}
	text = string(token)
	signed, err := jose.ParseSigned(text, signatures)
	if err != nil || len(signed.Signatures) != 1 {
		return "", "", refused("it is no JSON Web Token with one signature, of RSA, ECDSA or EdDSA")
	}
	var says struct {
		Issuer  string  `json:"iss"`
		Expires float64 `json:"exp"`
	}
	err = json.Unmarshal(signed.UnsafePayloadWithoutVerification(), &says)
	switch {
	case err != nil || says.Issuer != t.c.URL:
		return "", "", refused("it is not of the issuer %s", t.c.URL)
	case says.Expires <= float64(now.Unix()):
		return "", "", refused("it has expired, or does not say when it does")
	}
	return text, signed.Signatures[0].Header.KeyID, nil
}

// refused is the error for a token that is not accepted. What it says may come from the token.
func refused(why string, args ...any) error {
	return postdate.E(postdate.KindInvalid, "the token is refused: "+why, args...)
}

// has says whether there is a key with an id. Without an id any key may be meant.
func (k *keySet) has(id string) bool {
	return k != nil && slices.ContainsFunc(k.keys,
		func(key jose.JSONWebKey) bool { return id == "" || key.KeyID == id })
}

// VerifySignature implements [oidc.KeySet].
func (k *keySet) VerifySignature(_ context.Context, token string) ([]byte, error) {
	signed, err := jose.ParseSigned(token, signatures)
	if err != nil {
		return nil, err
	}
	header := signed.Signatures[0].Header
	for i := range k.keys {
		key := &k.keys[i]
		named := header.KeyID == "" || key.KeyID == header.KeyID
		if !named || key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		if payload, err := signed.Verify(key); err == nil {
			return payload, nil
		}
	}
	return nil, fmt.Errorf("no key of the issuer fits the signature")
}

// identity is who a token says that it is of.
func (t *Tokens) identity(token *oidc.IDToken) (Identity, error) {
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return Identity{}, refused("its claims cannot be read")
	}
	tenant, ok := claimOf(claims, t.c.TenantClaim).(string)
	if !ok {
		return Identity{}, refused("it has no text in the claim %s, which names the tenant", t.c.TenantClaim)
	}
	if err := postdate.CheckTenant(tenant); err != nil {
		return Identity{}, refused("claim %s: %w", t.c.TenantClaim, err)
	}
	if token.Subject == "" {
		return Identity{}, refused("it has no claim sub, which names its user")
	}
	i := Identity{KeyID: tokenIDPrefix + token.Subject[:min(len(token.Subject), subjectShown)], Tenant: tenant,
		ExpiresAt: postdate.LatestTime}
	if token.Expiry.Before(postdate.LatestTime.Std()) {
		i.ExpiresAt = postdate.WallOf(token.Expiry)
	}
	for _, name := range scopeNames(claimOf(claims, t.c.ScopeClaim)) {
		if s, err := ParseScope(name); err == nil { // others are for other services
			i.Scopes = append(i.Scopes, s)
		}
	}
	return i, nil
}

// claimOf returns the claim with a name, or where a JSON Pointer leads; nil if there is none.
func claimOf(claims map[string]any, name string) any {
	if !strings.HasPrefix(name, "/") {
		return claims[name]
	}
	at := any(claims)
	for part := range strings.SplitSeq(name[1:], "/") {
		inner, _ := at.(map[string]any)
		at = inner[strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")]
	}
	return at
}

func scopeNames(claim any) (names []string) {
	switch claim := claim.(type) {
	case string:
		return strings.Fields(claim)
	case []any:
		for _, name := range claim {
			if text, is := name.(string); is {
				names = append(names, text)
			}
		}
	}
	return names
}

func (t *Tokens) remembered(hash [sha256.Size]byte) *verified {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v := t.verified[0][hash]; v != nil {
		return v
	}
	return t.verified[1][hash]
}

// remember keeps a token. When there are many, the older half is forgotten.
func (t *Tokens) remember(hash [sha256.Size]byte, v *verified) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.verified[0]) >= tokensKept || t.verified[0] == nil {
		t.verified = [2]map[[sha256.Size]byte]*verified{{}, t.verified[0]}
	}
	t.verified[0][hash] = v
}
