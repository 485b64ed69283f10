package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/postdate/postdate/node"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "postdate.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// settle resolves a node's settings from command line, environment and file.
func settle(t *testing.T, args, env []string) (node.Config, error) {
	t.Helper()
	var n nodeFlags
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	n.register(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	err := resolve(flags, env)
	return n.finish(&bytes.Buffer{}), err
}

func TestFlagThenEnvironmentThenFileThenDefault(t *testing.T) {
	file := writeFile(t, "# a comment\nstore: pebble:file\nbuckets: 7\nretention: 3h\n")
	config := "POSTDATE_CONFIG=" + file
	for _, test := range []struct {
		name      string
		args, env []string
		store     string
		buckets   int
		retention time.Duration
	}{
		{"default", nil, nil, node.DefaultConfig().Store, node.DefaultConfig().Buckets, node.DefaultConfig().Retention},
		{"file", []string{"--config", file}, nil, "pebble:file", 7, 3 * time.Hour},
		{"file named by the environment", nil, []string{config}, "pebble:file", 7, 3 * time.Hour},
		{"environment before file", nil, []string{config, "POSTDATE_STORE=pebble:env", "POSTDATE_BUCKETS=8"}, "pebble:env", 8, 3 * time.Hour},
		{"empty environment is absent", nil, []string{config, "POSTDATE_STORE="}, "pebble:file", 7, 3 * time.Hour},
		{"flag before all", []string{"--store=pebble:flag"}, []string{config, "POSTDATE_STORE=pebble:env", "POSTDATE_BUCKETS=8"}, "pebble:flag", 8, 3 * time.Hour},
		{"a flag that says the default", []string{"--buckets", fmt.Sprint(node.DefaultConfig().Buckets)}, []string{config, "POSTDATE_BUCKETS=8"}, "pebble:file", node.DefaultConfig().Buckets, 3 * time.Hour},
	} {
		c, err := settle(t, test.args, test.env)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if c.Store != test.store || c.Buckets != test.buckets || c.Retention != test.retention {
			t.Errorf("%s: got %s %d %v, want %s %d %v", test.name, c.Store, c.Buckets, c.Retention, test.store, test.buckets, test.retention)
		}
	}
}

func TestEverySettingFromAFile(t *testing.T) {
	file := writeFile(t, `
http: 0.0.0.0:80
insecure: true
tls-cert: c.pem
tls-key: k.pem
tls-client-ca: ca.pem
store: "pebble:/x"
store-cache: 2GiB
rabbitmq: amqp://u:p@h:5672/%2f
buckets: 3
node-id: 0128
join:
  - a:1
  - b:2
kafka: [k1:9092, k2:9092]
kafka-tls: true
kafka-cert: kc
kafka-key: kk
kafka-ca: ka
rabbitmq-cert: rc
rabbitmq-key: rk
rabbitmq-ca: ra
kafka-sasl: plain
kafka-user: ku
kafka-password: kp
kafka-fenced: true
gossip: 0.0.0.0:7
gossip-advertise: me:7
gossip-key: [c2VjcmV0, b2xk]
lease: 4s
clock-skew-max: 2s
retention: 1h
inbox-retention: 2h
payload-max: 1MiB
retry-max-attempts: 9
retry-min-backoff: 2s
retry-max-backoff: 3m
retry-max-parked: 48h
log-level: debug
log-format: json
`)
	c, err := settle(t, []string{"--config", file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%v %v %v %v %v %v %v %v %v %v %v %v %v %v %v %v %v %v %v %v", c.HTTP, c.Insecure, c.TLS, c.Store, c.StoreCacheBytes, c.RabbitMQ, c.Buckets, c.NodeID, c.Join,
		c.Gossip, c.GossipAdvertise, c.GossipKeys, c.Lease, c.ClockSkewMax, c.Kafka,
		c.Retention, c.InboxRetention, c.PayloadBytesMax, c.Retry, c.RabbitMQTLS)
	want := "0.0.0.0:80 true {c.pem k.pem ca.pem} pebble:/x 2147483648 amqp://u:p@h:5672/%2f 3 0128 [a:1 b:2] 0.0.0.0:7 me:7 [c2VjcmV0 b2xk] 4s 2s {[k1:9092 k2:9092] true {kc kk ka} plain ku kp true} 1h0m0s 2h0m0s 1048576 {9 2s 3m0s 48h0m0s} {rc rk ra}"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestErrorsNameFileLineAndNearestKey(t *testing.T) {
	for _, test := range []struct{ file, want string }{
		{"store: pebble:x\nbuckts: 3\n", `:2: unknown key "buckts": did you mean buckets?`},
		{"zzzzzzzzzzz: 3\n", `:1: unknown key "zzzzzzzzzzz"`},
		{"config: other.yaml\n", `:1: unknown key "config"`},
		{"help: true\n", `:1: unknown key "help"`},
		{"\n\nbuckets: many\n", `:3: buckets: "many" is not a whole number`},
		{"retention: 7d\n", `:1: retention: "7d" is not a duration like`},
		{"log-level: loud\n", `:1: log-level: "loud" is not one of debug, info, warn, error`},
		{"store:\n  path: x\n", `line 1: store needs one value, or a list of values`},
		{"store:\n", `line 1: store needs one value, or a list of values`},
		{"- store\n", `line 1: expected settings`},
		{"store: [\n", `it is not YAML`},
		{"store: a\nstore: b\n", `it is not YAML`},
	} {
		_, err := settle(t, []string{"--config", writeFile(t, test.file)}, nil)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: got %v, want %s", test.file, err, test.want)
		}
	}
	_, err := settle(t, nil, []string{"POSTDATE_BUCKETS=many"})
	if want := `POSTDATE_BUCKETS: "many" is not a whole number`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestUnknownEnvironmentIsNamed(t *testing.T) {
	var n nodeFlags
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	n.register(flags)
	got := fmt.Sprint(unknownEnvironment(flags, []string{
		"POSTDATE_RABITMQ=x", "POSTDATE_SERVICE_PORT_HTTP_8080=1", "POSTDATE_STORE=x", "POSTDATE_SERVER=x", "PATH=/bin",
	}))
	if want := "[[POSTDATE_RABITMQ POSTDATE_RABBITMQ] [POSTDATE_SERVICE_PORT_HTTP_8080 ]]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "1": 1, "12B": 12, "256KiB": 256 << 10, "3MiB": 3 << 20, "64GiB": 64 << 30} {
		var s size
		if err := s.Set(text); err != nil || int(s) != want {
			t.Errorf("%s: got %d, %v, want %d", text, s, err, want)
		}
		var back size
		if err := back.Set(s.String()); err != nil || back != s {
			t.Errorf("%s: shown as %s, which is %d, %v", text, s.String(), back, err)
		}
	}
	for _, text := range []string{"", "-1", "1kb", "1.5MiB", "999999999999", "99999MiB", "65GiB", "MiB"} {
		var s size
		if err := s.Set(text); err == nil {
			t.Errorf("%q was taken as %d", text, s)
		}
	}
}

// Whatever a file contains, reading it returns entries or one error.
func FuzzParseFile(f *testing.F) {
	for _, seed := range []string{"", "a: 1\nb: [x, y]\n", "a:\n  - 1\n  - 2\n", "a: |\n  text\n", "a: {b: c}", "- x", "a: &x 1\nb: *x\n", "? [a]\n: b", "---\na: 1\n---\nb: 2\n", "<<: {a: 1}", "!!str a: b"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, err := parseFile(text)
		if err != nil && len(entries) > 0 {
			t.Errorf("%d entries beside the error %v", len(entries), err)
		}
		for _, e := range entries {
			if e.line < 1 || e.line > 2+bytes.Count(text, []byte("\n"))+bytes.Count(text, []byte("\r")) {
				t.Errorf("%+v: there is no such line", e)
			}
		}
	})
}
