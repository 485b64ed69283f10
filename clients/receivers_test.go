package clients

import (
	"encoding/json"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/postdate/postdate/client/receivers"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// vectors are what the receivers of all clients are tested with.
type vectors struct {
	Webhooks []struct {
		Name, Body string
		Secrets    []string
		Now        time.Time
		Headers    map[string]string
		Valid      bool
	}
	Headers []struct {
		Name, MessageID string
		Headers         map[string]any
		Want            *receivers.Delivery
	}
}

func readVectors(t *testing.T) (v vectors) {
	t.Helper()
	text, err := os.ReadFile("scenario/receivers.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Webhooks) == 0 || len(v.Headers) == 0 {
		t.Error("there are no vectors")
	}
	return v
}

func headerOf(fields map[string]string) http.Header {
	header := http.Header{}
	for name, value := range fields {
		header.Set(name, value)
	}
	return header
}

// What the clients' receivers are tested with is what the library of Standard Webhooks says of it.
func TestReceivers(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t).Webhooks {
		header, valid := headerOf(v.Headers), false
		for _, secret := range v.Secrets {
			w, err := standardwebhooks.NewWebhook(secret)
			if err != nil {
				t.Fatal(err)
			}
			valid = valid || w.VerifyIgnoringTimestamp([]byte(v.Body), header) == nil
		}
		seconds, err := strconv.ParseInt(header.Get("Webhook-Timestamp"), 10, 64)
		valid = valid && err == nil && v.Now.Sub(time.Unix(seconds, 0)).Abs() <= 5*time.Minute // the library looks at the clock
		if valid != v.Valid {
			t.Errorf("%s: it is %t that this is valid, want %t", v.Name, valid, v.Valid)
		}
	}
}
