package webhook

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/postdate/postdate"
)

// Lengths of a signing secret, in bytes, from the Standard Webhooks specification.
const (
	secretBytesMin = 24
	secretBytesMax = 64
)

// signers are the secrets by the place that they are for: a channel, a host's key, or "" for all.
type signers map[string][]*standardwebhooks.Webhook

func newSigners(secrets []string) (signers, error) {
	all := signers{}
	for i, entry := range secrets {
		place, secret := "", entry
		if at := strings.LastIndex(entry, "=whsec_"); at >= 0 { // base64 and URLs may hold other =
			var ok bool
			if place, ok = placeKey(entry[:at]); !ok {
				return nil, postdate.E(postdate.KindInvalid, "webhook secret %d is for no host and no channel: write "+
					"HOST=whsec_…, without a port, or https://HOST/PATH=whsec_…", i+1)
			}
			secret = entry[at+1:]
		}
		w, err := standardwebhooks.NewWebhook(secret)
		if err != nil || !strings.HasPrefix(secret, "whsec_") || !secretFits(secret) {
			return nil, postdate.E(postdate.KindInvalid, "webhook secret %d is not whsec_ and the base64 of %d to %d "+
				"bytes: make one with `echo whsec_$(openssl rand -base64 32)`", i+1, secretBytesMin, secretBytesMax)
		}
		all[place] = append(all[place], w)
	}
	return all, nil
}

// placeKey returns the key of the place that an operator's word names.
func placeKey(word string) (key string, ok bool) {
	if strings.Contains(word, "://") {
		_, err := parseURL(postdate.Channel(word))
		return word, err == nil
	}
	host := strings.TrimSuffix(strings.TrimPrefix(word, "["), "]") // of an IPv6 address
	_, err := netip.ParseAddr(host)
	return hostKey(host), err == nil || isHost(hostKey(word))
}

func secretFits(secret string) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	return err == nil && len(key) >= secretBytesMin && len(key) <= secretBytesMax
}

// of returns the secrets that are nearest to a channel.
func (s signers) of(channel postdate.Channel, host string) []*standardwebhooks.Webhook {
	for _, place := range []string{string(channel), hostKey(host)} {
		if nearest := s[place]; nearest != nil {
			return nearest
		}
	}
	return s[""]
}

// sign adds the headers of the Standard Webhooks specification. Their id is the same at each
// attempt, so that receivers can recognise repetitions.
func sign(h http.Header, m *postdate.Message, secrets []*standardwebhooks.Webhook, now time.Time) error {
	if len(secrets) == 0 {
		return nil
	}
	id := webhookID(m.ScheduleID)
	var signatures []string
	for _, s := range secrets {
		signature, err := s.Sign(id, now, m.Payload)
		if err != nil {
			return err
		}
		signatures = append(signatures, signature)
	}
	h.Set(standardwebhooks.HeaderWebhookID, id)
	h.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	h.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return nil
}

// webhookID returns the id that is signed. What is signed is the id, the time and the payload
// with a dot between them, so an id with a dot could stand for another one and another time:
// its hash stands for it.
func webhookID(scheduleID string) string {
	if !strings.Contains(scheduleID, ".") {
		return scheduleID
	}
	sum := sha256.Sum256([]byte(scheduleID))
	return "sha256_" + base64.RawURLEncoding.EncodeToString(sum[:])
}
