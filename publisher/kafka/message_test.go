package kafka

import (
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher/publishertest"
)

// The clients' receivers are tested with what this package publishes.
func TestClientsReceivers(t *testing.T) {
	publishertest.Receivers(t, "kafka", func(d *postdate.Delivery) (map[string]any, error) {
		headers := map[string]any{}
		for _, h := range record(d).Headers {
			headers[h.Key] = string(h.Value)
		}
		return headers, nil
	})
}
