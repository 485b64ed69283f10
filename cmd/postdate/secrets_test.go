package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/postdate/postdate/node"
)

func TestPasswordsAreHidden(t *testing.T) {
	for _, test := range []struct{ address, text, want string }{
		{"amqp://user:hunter2@host:5672/", "dial amqp://user:hunter2@host:5672/: refused", "dial amqp://user:xxxxx@host:5672/: refused"},
		{"amqp://user:pa%40ss@host/", "login user:pa@ss@host failed, pa%40ss@host", "login user:xxxxx@host failed, xxxxx@host"},
		{"amqp://user:p:q/r@x@host:bad port/", "parse \"amqp://user:p:q/r@x@host:bad port/\"", "parse \"amqp://user:xxxxx@host:bad port/\""},
		{"amqp://guest:guest@host/", "guest may not: amqp://guest:guest@host/", "guest may not: amqp://guest:xxxxx@host/"},
		{"amqp://host/", "amqp://host/ is down", "amqp://host/ is down"},
		{"amqp://user@host/", "amqp://user@host/ is down", "amqp://user@host/ is down"},
		{"", "nothing", "nothing"},
	} {
		var b strings.Builder
		if n, err := fmt.Fprint((secrets{urls: []string{test.address}}).redact(&b), test.text); err != nil || n != len(test.text) || b.String() != test.want {
			t.Errorf("%s: written as %q (%d, %v), want %q", test.address, b.String(), n, err, test.want)
		}
		cause := errors.New(test.text)
		if err := (secrets{urls: []string{test.address}}).redactError(cause); err.Error() != test.want || !errors.Is(err, cause) {
			t.Errorf("%s: the error is %q, want %q", test.address, err, test.want)
		}
	}
	if err := (secrets{urls: []string{"amqp://user:hunter2@host/"}}).redactError(nil); err != nil {
		t.Errorf("no error became %v", err)
	}
}

func TestSecretsOfANode(t *testing.T) {
	c := node.Config{AdminKey: "admin-secret", GossipKeys: []string{"gossip-secret"}, Kafka: node.Kafka{Password: "kafka-secret"}, Webhook: node.Webhook{Secrets: []string{"hook-secret"}}}
	var b strings.Builder
	fmt.Fprint(secretsOf(c).redact(&b), "admin-secret gossip-secret kafka-secret hook-secret")
	if strings.Contains(b.String(), "secret") {
		t.Errorf("written as %q", b.String())
	}
}

func TestWordsAreHidden(t *testing.T) {
	var b strings.Builder
	s := secrets{urls: []string{"mongodb://u:pw1@h/db", "amqp://u:pw2@h/"}, words: []string{"", "c2VjcmV0"}}
	fmt.Fprint(s.redact(&b), "u:pw1@h u:pw2@h key c2VjcmV0")
	if want := "u:xxxxx@h u:xxxxx@h key xxxxx"; b.String() != want {
		t.Errorf("written as %q, want %q", b.String(), want)
	}
}

// Whichever place a webhook's secret is for, it is hidden wherever it stands.
func TestWebhookSecretsAreHidden(t *testing.T) {
	var c node.Config
	c.Webhook.Secrets = []string{"whsec_QUFB", "hooks.example=whsec_QkJC=", "https://h.example/a?b=c=whsec_Q0ND==", "other.example=RERE", "e.example=whsec_"}
	var b strings.Builder
	fmt.Fprint(secretsOf(c).redact(&b), "whsec_QUFB, whsec_QkJC=, whsec_Q0ND==, hooks.example=whsec_QkJC=; other.example=RERE; write whsec_ and base64")
	if want := "xxxxx, xxxxx, xxxxx, hooks.example=xxxxx; xxxxx; write whsec_ and base64"; b.String() != want {
		t.Errorf("written as %q, want %q", b.String(), want)
	}
}
