package webhook

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
)

// Values of the CloudEvents attributes that are the same for all messages.
const (
	cloudEventsVersion = "1.0"
	eventType          = "postdate.message"
)

// ours are the headers that clients cannot set, because HTTP or this package sets them. So are
// all that begin with ce-, webhook-, proxy- or sec-.
var ours = map[string]bool{
	"Host": true, "Content-Length": true, "Content-Type": true, "Content-Encoding": true, "User-Agent": true,
	"Connection": true, "Keep-Alive": true, "Transfer-Encoding": true, "Te": true, "Trailer": true,
	"Upgrade": true, "Expect": true, "Http2-Settings": true,
}

var ownPrefixes = []string{"Ce-", "Webhook-", "Proxy-", "Sec-"}

func isOurs(name string) bool {
	if ours[name] {
		return true
	}
	for _, prefix := range ownPrefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// request makes the HTTP request of a delivery. If HTTP cannot carry the message, it returns an
// error that says why; no retry can help.
func (c *call) request(d *postdate.Delivery, now time.Time) (*http.Request, error) {
	m := d.Message
	h := http.Header{}
	for own := range publisher.ClientHeaders(m) {
		name := textproto.CanonicalMIMEHeaderKey(own.Name)
		if !isToken(own.Name) {
			return nil, fmt.Errorf("header %q: HTTP does not allow that name", own.Name)
		}
		if !isValue(own.Value) {
			return nil, fmt.Errorf("header %s: HTTP does not allow control characters in its value", own.Name)
		}
		if !isOurs(name) {
			h[name] = append(h[name], own.Value)
		}
	}
	if !isValue(m.ContentType) {
		return nil, fmt.Errorf("content type %q: HTTP does not allow control characters", m.ContentType)
	}
	if m.ContentType != "" {
		h.Set("Content-Type", m.ContentType)
	}
	h.Set("User-Agent", "Postdate")
	h.Set("ce-specversion", cloudEventsVersion)
	h.Set("ce-id", m.ScheduleID)
	h.Set("ce-source", source(c.p.config.Deployment, m.Tenant))
	h.Set("ce-type", eventType)
	h.Set("ce-time", m.ExecutionTime.String())
	h.Set(publisher.HeaderScheduleID, m.SeriesID())
	h.Set(publisher.HeaderExecutionTime, m.ExecutionTime.String())
	h.Set(publisher.HeaderAttempt, strconv.Itoa(d.Attempt))
	if d.PossibleDuplicate {
		h.Set(publisher.HeaderPossibleDuplicate, "true")
	}
	for name, value := range publisher.TraceHeaders(m) {
		h.Set(name, value)
	}
	if err := sign(h, m, c.secrets, now); err != nil {
		return nil, err
	}
	// net/http repeats a request by itself if it has GetBody or no body and the client's
	// headers call it idempotent. This one has a body and no GetBody.
	return &http.Request{
		Method: http.MethodPost, URL: c.to, Host: c.to.Host, Header: h, ContentLength: int64(len(m.Payload)),
		Body: io.NopCloser(bytes.NewReader(m.Payload)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// source returns the CloudEvents source, a URI within which ids are unique.
func source(deployment, tenant string) string {
	if deployment == "" {
		return "/postdate/" + url.PathEscape(tenant)
	}
	return "/postdate/" + url.PathEscape(deployment) + "/" + url.PathEscape(tenant)
}

// isToken reports whether HTTP allows name as a header's name.
func isToken(name string) bool {
	for i := range len(name) {
		switch b := name[i]; {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0:
		default:
			return false
		}
	}
	return name != ""
}

// isValue reports whether HTTP allows value as a header's value.
func isValue(value string) bool {
	for i := range len(value) {
		if b := value[i]; b < ' ' && b != '\t' || b == 0x7f {
			return false
		}
	}
	return true
}
