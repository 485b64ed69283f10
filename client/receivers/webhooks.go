package receivers

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const secretBytesMin = 16

// Webhooks verifies the signatures of webhooks, as Standard Webhooks has them.
type Webhooks struct {
	// Tolerance is how far the sender's clock may be from this one. NewWebhooks sets 5 minutes.
	Tolerance time.Duration

	keys []*standardwebhooks.Webhook
}

// NewWebhooks verifies with secrets (whsec_…), of which one is enough, so that you can replace one.
func NewWebhooks(secrets ...string) (*Webhooks, error) {
	w := &Webhooks{Tolerance: 5 * time.Minute}
	for n, secret := range secrets {
		text, prefixed := strings.CutPrefix(secret, "whsec_")
		key, err := base64.StdEncoding.DecodeString(text)
		if !prefixed || err != nil || len(key) < secretBytesMin {
			return nil, fmt.Errorf("secret %d of %d is none: a secret of webhooks is whsec_ and the base64 of "+
				"at least %d bytes", n+1, len(secrets), secretBytesMin)
		}
		verifier, err := standardwebhooks.NewWebhookRaw(key)
		if err != nil {
			return nil, err
		}
		w.keys = append(w.keys, verifier)
	}
	return w, nil
}

// Verify verifies a request, whose body nothing has parsed yet, and returns its signed id for [Dedupe]: the same
// for each attempt, and of a series another one for each occurrence. An error means that nobody who has a secret
// has just sent this: answer 401.
func (w *Webhooks) Verify(header http.Header, body []byte) (id string, err error) {
	if header.Get(standardwebhooks.HeaderWebhookSignature) == "" {
		return "", errors.New("the request is not signed")
	}
	known := false
	for _, key := range w.keys {
		known = known || key.VerifyIgnoringTimestamp(body, header) == nil
	}
	if !known {
		return "", errors.New("no signature is by a secret that is known here")
	}
	seconds, err := strconv.ParseInt(header.Get(standardwebhooks.HeaderWebhookTimestamp), 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > w.Tolerance {
		return "", errors.New("the request is too old, or a clock is wrong: compare this machine's with the node's")
	}
	return header.Get(standardwebhooks.HeaderWebhookID), nil
}
