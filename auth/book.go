package auth

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"

	"github.com/postdate/postdate"
)

// The parts of a key's text: pd_ID_SECRET.
const (
	keyPrefix   = "pd_"
	idBytes     = 12
	secretBytes = 43 // of 62 possible ones each, which is 256 bits
	keyBytes    = len(keyPrefix) + idBytes + 1 + secretBytes
)

// Refusal says why a request has no identity.
type Refusal uint8

// The refusals.
const (
	Accepted  Refusal = iota
	NoKey             // there is no Authorization header
	Malformed         // the header is of another form than Bearer KEY
	Unknown           // nobody has that key
	Expired           // the key was good until some time ago
)

// book has all keys. It is never changed.
type book struct {
	admin *[sha256.Size]byte // of --admin-key; nil: there is none
	keys  map[string]*entry
}

// adminIdentity is that of --admin-key.
var adminIdentity = Identity{KeyID: AdminKeyID, Tenant: postdate.DefaultTenant, Scopes: []Scope{Admin}}

// authenticate finds whose key an Authorization header carries. With Expired, the identity is
// that of the key. entry is nil for --admin-key.
//
// Secrets are compared by their hashes, and in constant time. Whether an id exists may show in
// the time that a refusal takes: ids are no secrets.
func (b *book) authenticate(header []byte, now postdate.Time) (*Identity, *entry, Refusal) {
	if len(header) == 0 {
		return nil, nil, NoKey
	}
	text := credential(header)
	if len(text) == 0 {
		return nil, nil, Malformed
	}
	if len(text) == keyBytes && string(text[:len(keyPrefix)]) == keyPrefix {
		id, secret := text[len(keyPrefix):len(keyPrefix)+idBytes], text[keyBytes-secretBytes:]
		e := b.keys[string(id)]
		switch {
		case e == nil || text[keyBytes-secretBytes-1] != '_' || !sameHash(secret, &e.hash):
		case e.identity.ExpiresAt != 0 && now >= e.identity.ExpiresAt:
			return &e.identity, e, Expired
		default:
			return &e.identity, e, Accepted
		}
	}
	if b.admin != nil && sameHash(text, b.admin) {
		return &adminIdentity, nil, Accepted
	}
	return nil, nil, Unknown
}

// credential is what an Authorization header carries after Bearer; nil if it has another form.
func credential(header []byte) []byte {
	const scheme = "bearer "
	if len(header) <= len(scheme) || !bytes.EqualFold(header[:len(scheme)], []byte(scheme)) {
		return nil
	}
	return bytes.Trim(header[len(scheme):], " ")
}

// TokenIn returns the JSON Web Token that an Authorization header carries, or nil.
func TokenIn(header []byte) []byte {
	if text := credential(header); bytes.Count(text, []byte{'.'}) == 2 {
		return text
	}
	return nil
}

// sameHash says whether want is the hash of a secret.
func sameHash(secret []byte, want *[sha256.Size]byte) bool {
	hash := sha256.Sum256(secret)
	return subtle.ConstantTimeCompare(hash[:], want[:]) == 1
}
