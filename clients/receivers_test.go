package clients

import (
	"encoding/json"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// What the clients' receivers are tested with is what the library of Standard Webhooks says of it.
func TestReceivers(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("scenario/receivers.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		Webhooks []struct {
			Name, Body string
			Secrets    []string
			Now        time.Time
			Headers    map[string]string
			Valid      bool
		}
	}
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors.Webhooks {
		header := http.Header{}
		for name, value := range v.Headers {
			header.Set(name, value)
		}
		valid := false
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
	if len(vectors.Webhooks) == 0 {
		t.Error("there are no webhooks")
	}
}
