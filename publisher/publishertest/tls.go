package publishertest

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/certs"
	"github.com/postdate/postdate/publisher"
)

// TLSHarness is what RunTLS needs from a publisher and its broker, which asks for certificates.
type TLSHarness struct {
	Flag            string      // begins the names of the flags, like --kafka
	Known, Stranger certs.Files // certificates of the broker's authority, and of another one
	Good            []string    // addresses at which the broker accepts Known
	Plain           string      // an address at which it speaks no TLS
	PlainReason     string      // what the publisher then says

	New     func(t *testing.T, address string, secure *tls.Config) publisher.Publisher
	Channel postdate.Channel
	Count   func() int // counts what is on the channel
}

// RunTLS checks that over TLS messages go as without it. If a certificate is not as it should be,
// they are Down, never Unknown, with words that say what to do.
func RunTLS(t *testing.T, h TLSHarness) {
	const size = 100
	for _, address := range h.Good {
		h.check(t, "good", address, h.Known, nil, size, "")
	}
	stranger := h.Stranger
	stranger.CA = h.Known.CA
	elsewhere := func(c *tls.Config) { c.ServerName = "elsewhere" }
	later := func(c *tls.Config) { c.Time = func() time.Time { return time.Now().Add(48 * time.Hour) } }
	pair := h.Flag + "-cert and " + h.Flag + "-key"
	h.check(t, "unknown authority", h.Good[0], certs.Files{CA: h.Stranger.CA}, nil, size,
		"the authority that signed its certificate is not known here: name the file with the authority's "+
			"certificate in "+h.Flag+"-ca")
	h.check(t, "no certificate", h.Good[0], certs.Files{CA: h.Known.CA}, nil, size, pair)
	h.check(t, "another authority's certificate", h.Good[0], stranger, nil, size, pair)
	h.check(t, "another name", h.Good[0], h.Known, elsewhere, size, "address it by a name that its certificate has")
	h.check(t, "expired", h.Good[0], h.Known, later, size, "renew its certificate")
	h.check(t, "no TLS at that port", h.Plain, h.Known, nil, size, h.PlainReason)
	if n := h.Count(); n != size*len(h.Good) {
		t.Errorf("%d messages are on the channel", n)
	}
}

// check publishes so many messages with the files, and wants each to be Down for a reason; "": to
// be confirmed. change changes the settings before that; nil: it does not.
func (h TLSHarness) check(t *testing.T, name, address string, files certs.Files, change func(*tls.Config),
	size int, reason string) {
	t.Run(name, func(t *testing.T) {
		secure, err := files.Client(h.Flag)
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(secure)
		}
		want := publisher.Confirmed
		if reason != "" {
			want = publisher.Down
		}
		p := Closing(t, h.New(t, address, secure))
		for _, r := range p.Publish(context.Background(), h.Channel, Batch("m", size)) {
			if r.Outcome != want || !strings.Contains(r.Reason, reason) {
				t.Fatalf("%v: %s", r.Outcome, r.Reason)
			}
		}
	})
}
