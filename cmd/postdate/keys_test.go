package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate/cmd/postdate/internal/bench"
)

// An administrator makes a key with the command, which then serves all commands, until it is
// revoked. Nothing of it is in the node's log.
func TestKeysCommand(t *testing.T) {
	t.Parallel()
	const adminKey = "an-administrator-of-32-characters"
	s := startServe(t, []string{"POSTDATE_ADMIN_KEY=" + adminKey, "POSTDATE_API_KEY=not-for-the-node"})
	server := "POSTDATE_SERVER=" + s.ready.HTTP
	admin := []string{server, "POSTDATE_API_KEY=" + adminKey}
	made := call(admin, "", "keys", "create", "--tenant", "acme", "--scope", "sched:w,sched:r", "--scope", "ops:r", "--channel", "inbox:*", "--expires", "90d")
	match := regexp.MustCompile(`^pd_([a-z0-9]{12})_[a-zA-Z0-9]{43}\n$`).FindStringSubmatch(made.stdout)
	if made.code != exitOK || match == nil || !strings.Contains(made.stderr, "key "+match[1]+" of tenant acme") {
		t.Fatalf("%+v", made)
	}
	id, key := match[1], strings.TrimSpace(made.stdout)
	for _, test := range []struct {
		env  []string
		args []string
		code int
		want string // in what it prints
	}{
		{[]string{server}, []string{"list"}, exitFailed, "this call needs a key: send it in the header Authorization: Bearer KEY; a command takes the key from --api-key or POSTDATE_API_KEY"},
		{[]string{server, "POSTDATE_API_KEY=" + key}, []string{"send", "--id", "o-1", "--in", "1h", "--channel", "inbox:x", "--data", "x"}, exitOK, "scheduled o-1"},
		{[]string{server}, []string{"get", "o-1", "--api-key", key}, exitOK, "PENDING"},
		{[]string{server}, []string{"list", "--api-key", key}, exitOK, "o-1"},
		{[]string{server}, []string{"tail", "inbox:x", "--api-key", "pd_k3v9x0q2m7ab_" + strings.Repeat("a", 43)}, exitFailed, "nobody has this key"},
		{[]string{server}, []string{"cluster", "--api-key", key}, exitOK, "alive"},
		{[]string{server}, []string{"channels", "--api-key", key}, exitOK, "CHANNEL"},
		{[]string{server}, []string{"pause", "inbox:x", "--api-key", key}, exitFailed, "has no scope channels:w, which this call needs: it has sched:w, sched:r, ops:r"},
		{[]string{server}, []string{"send", "--in", "1h", "--channel", "https://example.com/", "--data", "x", "--api-key", key}, exitFailed, "is not for the channel https://example.com/: it is for inbox:*"},
		{[]string{server}, []string{"keys", "list", "--api-key", key}, exitFailed, "has no scope admin"},
		{admin, []string{"list"}, exitOK, "ID"}, // of another tenant
		{admin, []string{"get", "o-1"}, exitFailed, "there is no message"},
		{[]string{server}, []string{"cancel", "o-1", "--api-key", key}, exitOK, "cancelled o-1"},
		{admin, []string{"keys", "list"}, exitOK, id + "  acme    sched:w,sched:r,ops:r  inbox:*"},
		{admin, []string{"keys", "list", "--json"}, exitOK, `"channels":["inbox:*"]`},
		{[]string{server}, []string{"whoami", "--api-key", key}, exitOK, "scopes    sched:r,sched:w,ops:r\nchannels  inbox:*\nkey       " + id + "\nexpires   2"},
		{admin, []string{"keys", "revoke"}, exitUsage, "say which: the id of a key, which \"postdate keys list\" shows"},
		{admin, []string{"keys", "revoke", "pd_"}, exitUsage, "say which: the id of a key, which"},
		{admin, []string{"keys", "revoke", key}, exitOK, "revoked " + id},
		{admin, []string{"keys", "revoke", key}, exitFailed, "a key's whole text was given: only its id, " + id + ", is used"},
		{admin, []string{"keys", "revoke", id}, exitFailed, "there is no key " + id},
		{[]string{server}, []string{"list", "--api-key", key}, exitFailed, "it was revoked"},
		{admin, []string{"keys", "delete", id}, exitUsage, `unknown command "delete" for "postdate keys"`},
		{admin, []string{"keys", "create", "--tenant", "acme", "--scope", "all"}, exitFailed, `there is no scope "all"`},
		{admin, []string{"keys", "create", "--tenant", "acme", "--scope", "sched:w", "--channel", "inbox:a,inbox:b"}, exitUsage, `--channel "inbox:a,inbox:b" has a comma: repeat --channel for each, and write * for a comma in a name`},
		{admin, []string{"keys", "create", "--tenant", "acme", "--scope", "sched:w", "--channel", "rabitmq:x"}, exitFailed, `the pattern "rabitmq:x" matches no channel: they begin with http:, https:, inbox:, kafka: or rabbitmq:; did you mean rabbitmq:?`},
		{admin, []string{"keys", "create", "--tenant", "acme", "--scope", "sched:w", "--channel", "kafka:*", "--channel", "rab*", "--channel", "*:x", "--channel", "https://h/*"}, exitOK, "pd_"},
	} {
		r := call(test.env, "", test.args...)
		if strings.Contains(r.stdout+r.stderr, key) {
			t.Errorf("%v: it shows the key", test.args)
		}
		if r.code != test.code || !strings.Contains(r.stdout+r.stderr, test.want) {
			t.Errorf("%v: %+v, want %q", test.args, r, test.want)
		}
	}
	if err := s.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
	log := s.stderr.String()
	if strings.Contains(log, adminKey) || strings.Contains(log, key[16:]) || strings.Contains(log, "name=POSTDATE_A") {
		t.Errorf("the log is\n%s", log)
	}
	for _, line := range []string{"an API key was made", "an API key was revoked", "a request was refused"} {
		if !strings.Contains(log, line) {
			t.Errorf("the log does not say %q:\n%s", line, log)
		}
	}
}

// The list says which keys have expired.
func TestShownExpiry(t *testing.T) {
	now := time.Date(2027, 1, 31, 9, 30, 0, 0, time.UTC)
	for want, at := range map[string]time.Time{
		"never": {}, "2027-01-31T09:30:00.000Z (expired)": now, "2027-01-31T09:30:01.000Z": now.Add(time.Second),
	} {
		if got := shownExpiry(at, now); got != want {
			t.Errorf("%v is shown as %q, want %q", at, got, want)
		}
	}
}

// The benchmark measures a node that asks for a key.
func TestBenchWithKey(t *testing.T) {
	t.Parallel()
	const adminKey = "an-administrator-of-32-characters"
	s := startServe(t, []string{"POSTDATE_ADMIN_KEY=" + adminKey})
	c := bench.DefaultConfig()
	c.Server, c.APIKey = "http://"+s.ready.HTTP, adminKey
	c.Callers, c.Messages, c.Batch, c.Rate, c.Duration = 4, 40, 10, 20, time.Second
	if _, err := bench.Run(t.Context(), c); err != nil {
		t.Error(err)
	}
	c.APIKey = ""
	if _, err := bench.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "needs a key") {
		t.Errorf("without a key: %v", err)
	}
	_ = s.Process.Signal(os.Interrupt)
	_ = s.Wait()
}
