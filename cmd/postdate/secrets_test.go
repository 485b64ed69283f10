package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
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
		if n, err := fmt.Fprint(redactURL(&b, test.address), test.text); err != nil || n != len(test.text) || b.String() != test.want {
			t.Errorf("%s: written as %q (%d, %v), want %q", test.address, b.String(), n, err, test.want)
		}
		cause := errors.New(test.text)
		if err := redactError(cause, test.address); err.Error() != test.want || !errors.Is(err, cause) {
			t.Errorf("%s: the error is %q, want %q", test.address, err, test.want)
		}
	}
	if err := redactError(nil, "amqp://user:hunter2@host/"); err != nil {
		t.Errorf("no error became %v", err)
	}
}
