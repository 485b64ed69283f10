package postdate_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/postdate/postdate"
)

func TestParseChannel(t *testing.T) {
	for text, want := range map[string][2]string{
		"rabbitmq:orders":               {"rabbitmq", "orders"},
		"rabbitmq:exchange/routing.key": {"rabbitmq", "exchange/routing.key"},
		"kafka:topic":                   {"kafka", "topic"},
		"https://example.com/hook":      {"https", "//example.com/hook"},
		"inbox:a:b":                     {"inbox", "a:b"},
		"rabbitmq:a b":                  {"rabbitmq", "a b"},
		"rabbitmq:Grüezi":               {"rabbitmq", "Grüezi"},
	} {
		c, err := postdate.ParseChannel(text)
		if err != nil || string(c) != text || c.Broker() != want[0] || c.Target() != want[1] {
			t.Errorf("%q is %q and %q, %v", text, c.Broker(), c.Target(), err)
		}
	}
	for text, words := range map[string]string{
		"":                 "missing",
		"orders":           "broker:target",
		":orders":          "broker:target",
		"rabbitmq:":        "broker:target",
		"rabbitmq:a\nb":    "control character",
		"rabbitmq:a\xff":   "not UTF-8",
		"rabbitmq:a\u007f": "control character",
		"inbox:a b":        "forbidden character",
		"inbox:..":         "URL path",
		"inbox:" + strings.Repeat("x", postdate.InboxNameBytesMax+1): "129 bytes",
		"rabbitmq:" + strings.Repeat("x", postdate.ChannelBytesMax):  "at most 2048",
	} {
		_, err := postdate.ParseChannel(text)
		if err == nil || postdate.KindOf(err) != postdate.KindInvalid || !strings.Contains(err.Error(), words) {
			t.Errorf("%.40q: %v, want %q", text, err, words)
		}
	}
}

// FuzzParseChannel: an accepted channel is unchanged, has two parts that are not
// empty, can be stored in a key, and can be shown.
func FuzzParseChannel(f *testing.F) {
	for _, s := range []string{"rabbitmq:orders", "inbox:a", "https://example.com/hook", ":", "inbox:\x00", "a:\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := postdate.ParseChannel(s)
		if err != nil {
			if postdate.KindOf(err) != postdate.KindInvalid || c != "" {
				t.Fatalf("%q: %q, %v", s, c, err)
			}
			return
		}
		if string(c) != s || c.Broker() == "" || c.Target() == "" || c.Broker()+":"+c.Target() != s {
			t.Fatalf("%q is %q and %q", s, c.Broker(), c.Target())
		}
		if len(s) > postdate.ChannelBytesMax || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			t.Fatalf("%q was accepted", s)
		}
	})
}

func TestShown(t *testing.T) {
	for c, want := range map[postdate.Channel]string{
		"https://hooks.example:8443/T0/s3cret?key=s3cret": "https://hooks.example:8443", "http://[fd00::1]?s3cret": "http://[fd00::1]",
		"https://u:s3cret@h.example#s3cret": "https://h.example", "https:s3cret": "https", "HTTPS://h.example/s3cret": "https://h.example", `https://h.example\s3cret`: "https://h.example",
		"rabbitmq:a://b/c": "rabbitmq:a://b/c", "inbox:x": "inbox:x", "": "",
	} {
		if got := c.Shown(); got != want {
			t.Errorf("%q is shown as %q, want %q", c, got, want)
		}
	}
}
