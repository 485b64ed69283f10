package webhook

import (
	"net/url"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher/publishertest"
)

// The clients' receivers are tested with what this package sends.
func TestClientsReceivers(t *testing.T) {
	publishertest.Receivers(t, "webhook", func(d *postdate.Delivery) (map[string]any, error) {
		c := &call{p: &Publisher{}, to: &url.URL{Scheme: "https", Host: "shop.example"}}
		r, err := c.request(d, time.Now())
		if err != nil {
			return nil, err
		}
		headers := map[string]any{}
		for name := range r.Header {
			headers[name] = r.Header.Get(name)
		}
		return headers, nil
	})
}
