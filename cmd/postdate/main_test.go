package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// asCommand is the environment variable that makes the test binary the command itself, so that
// tests can run it as real processes, with the race detector if the test has it.
const asCommand = "RUN_AS_POSTDATE"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// result is what one call of the command returned.
type result struct {
	code           int
	stdout, stderr string
}

// call runs the command in this process.
func call(env []string, stdin string, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := run(args, process{stdin: strings.NewReader(stdin), stdout: &stdout, stderr: &stderr, environ: env})
	return result{code: code, stdout: stdout.String(), stderr: stderr.String()}
}

// TestHelp compares the help texts, which newcomers read first, with testdata/help.txt, so that
// changes show in review.
func TestHelp(t *testing.T) {
	var all strings.Builder
	for _, args := range [][]string{
		{"help"}, {"serve", "--help"}, {"demo", "--help"}, {"send", "--help"}, {"get", "--help"}, {"cancel", "--help"},
		{"pause-series", "--help"}, {"resume-series", "--help"}, {"trigger", "--help"},
		{"list", "--help"}, {"tail", "--help"}, {"preview", "--help"}, {"cluster", "--help"}, {"channels", "--help"}, {"pause", "--help"}, {"resume", "--help"}, {"keys", "--help"}, {"keys", "create", "--help"}, {"keys", "list", "--help"}, {"keys", "revoke", "--help"}, {"bench", "--help"}, {"store", "init", "--help"}, {"version", "--help"},
	} {
		r := call([]string{"POSTDATE_RABBITMQ=amqp://user:hunter2@host/"}, "", args...)
		if r.code != exitOK || r.stderr != "" {
			t.Errorf("%v: exit code %d, standard error %q", args, r.code, r.stderr)
		}
		if strings.Contains(r.stdout, "hunter2") {
			t.Errorf("%v shows the secret", args)
		}
		all.WriteString("$ postdate " + strings.Join(args, " ") + "\n" + r.stdout + "\n")
	}
	golden := filepath.Join("testdata", "help.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if all.String() != string(want) {
		t.Errorf("the help differs from %s; if it is to, run: go test ./cmd/postdate -run TestHelp -update\n%s", golden, all.String())
	}
}

// TestHelpIsForPeople requires that each command has a summary, an example and lines that fit a
// terminal.
func TestHelpIsForPeople(t *testing.T) {
	for _, c := range newRoot(process{}).Commands() {
		if c.Short == "" || c.Example == "" {
			t.Errorf("%s has no summary or no example", c.Name())
		}
		for _, line := range strings.Split(c.Long, "\n") {
			if len(line) > 85 {
				t.Errorf("%s: the line is %d wide: %s", c.Name(), len(line), line)
			}
		}
	}
}

func TestWrongCalls(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"srve"}, "Did you mean this?\n\tserve"},
		{[]string{"serve", "--rabitmq", "x"}, "unknown flag --rabitmq: did you mean --rabbitmq?"},
		{[]string{"serve", "--zzzzzzzzz"}, "unknown flag --zzzzzzzzz\n"},
		{[]string{"serve", "--buckets", "many"}, `--buckets: "many" is not a whole number`},
		{[]string{"bench", "--backlog", "1e6"}, `--backlog: "1e6" is not a list of whole numbers like 1000000,10000000`},
		{[]string{"bench", "--backlog", "50,10"}, "--backlog is [50 10]: each size must be greater than the one before"},
		{[]string{"serve", "--http", "0.0.0.0:0"}, "--http 0.0.0.0:0 lets other machines in"},
		{[]string{"serve", "--http", "8090"}, `--http "8090" is not HOST:PORT: write it like 127.0.0.1:8090, or :8090 for all addresses`},
		{[]string{"serve", "--http", "localhost"}, `--http "localhost" is not HOST:PORT: write it like localhost:8080`},
		{[]string{"serve", "--http", "http://127.0.0.1:8090"}, `is not HOST:PORT: write it like 127.0.0.1:8080`},
		{[]string{"serve", "--http", "::1"}, `--http "::1" is not HOST:PORT: write it like [::1]:8080`},
		{[]string{"serve", "--http", ":0"}, "give --insecure"},
		{[]string{"serve", "--http", "localhost.example.com:0"}, "listen on 127.0.0.1"},
		{[]string{"serve", "--admin-key", "short"}, "--admin-key: the key has 5 characters, and must have between 32 and 256"},
		{[]string{"serve", "--metrics-open"}, "--metrics-open: without --admin-key or --oidc-issuer nothing needs a key"},
		{[]string{"serve", "--cors-origin", "https://app.example/"}, `--cors-origin: "https://app.example/" is not an origin: write it like https://app.example`},
		{[]string{"serve", "--cors-origin", "*"}, "--cors-origin * lets every web page do everything here"},
		{[]string{"keys", "create", "--scope", "admin"}, "say for whom: --tenant NAME"},
		{[]string{"keys", "create", "--tenant", "a"}, "say what for: --scope sched:w,sched:r"},
		{[]string{"serve", "--rabbitmq", "amqp://h/", "--rabbitmq-ca", "x"}, "--rabbitmq is no amqps:// URL"},
		{[]string{"serve", "--rabbitmq-cert", "x", "--rabbitmq-key", "y"}, "--rabbitmq is no amqps:// URL"},
		{[]string{"serve", "--rabbitmq", "amqps://h/", "--rabbitmq-cert", "x"}, "--rabbitmq-key is missing"},
		{[]string{"serve", "--kafka", "h:1", "--kafka-ca", "x"}, "--kafka-tls is missing"},
		{[]string{"serve", "--kafka", "h:1", "--kafka-tls", "--kafka-key", "x"}, "--kafka-cert is missing"},
		{[]string{"serve", "--kafka-cert", "x"}, "--kafka is missing"},
		{[]string{"serve", "--retention", "7d"}, `--retention: "7d" is not a duration like 90s, 15m or 168h`},
		{[]string{"serve", "--store-cache", "1000"}, `--store-cache is 1000 bytes: it must be at least 1 MiB`},
		{[]string{"serve", "--store", "mongodb://127.0.0.1:1/x", "--store-cache", "1GiB"}, `--store-cache: MongoDB has its own cache`},
		{[]string{"serve", "--payload-max", "1GB"}, `--payload-max: "1GB" is not a size like 65536, 256KiB or 1GiB, of at most 64GiB`},
		{[]string{"serve", "--log-level", "loud"}, `--log-level: "loud" is not one of debug, info, warn, error`},
		{[]string{"serve", "now"}, "unknown command"},
		{[]string{"serve", "--store", "mongodb://127.0.0.1:1/x", "--gossip-key", "short"}, "--gossip-key must be the base64 of 16, 24 or 32 bytes"}, // the store is not asked
		{[]string{"serve", "--store", "mongodb://127.0.0.1:1/x", "--gossip", "0.0.0.0:0"}, "--gossip 0.0.0.0:0 lets other machines in"},
		{[]string{"serve", "--store", "mongodb://127.0.0.1:1/x", "--gossip", ":0", "--gossip-key", ""}, "give all nodes the same --gossip-key"},
		{[]string{"serve", "--store", "mongodb://127.0.0.1:1/x", "--gossip", "node-1:7946", "--gossip-key", "MDEyMzQ1Njc4OTAxMjM0NQ==,"}, "--gossip-key must be"},
		{[]string{"serve", "--store", "mongodb://127.0.0.1:1/x", "--join", "10.0.0.1"}, `--join "10.0.0.1" is not an address: write host:port`},
		{[]string{"serve", "--tls-cert", "x"}, "--tls-key is missing"},
		{[]string{"serve", "--tls-key", "x"}, "--tls-cert is missing"},
		{[]string{"serve", "--tls-client-ca", "x"}, "--tls-cert and --tls-key are missing"},
		{[]string{"get", "x", "--tls-key", "x"}, "--tls-cert is missing"},
		{[]string{"get", "x", "--tls-ca", "/nowhere/x"}, "--tls-ca cannot be read: open /nowhere/x"},
		{[]string{"serve", "--config", "/nowhere/x.yaml"}, "cannot read the configuration file"},
		{[]string{"get"}, "requires at least 1 arg"},
		{[]string{"send", "--channel", "inbox:x", "--data", "x"}, "say when: --at TIME, or --in DELAY"},
		{[]string{"send", "--in", "5s", "--data", "x"}, "say where to: --channel"},
		{[]string{"send", "--in", "5s", "--channel", "inbox:x"}, "say what: --data TEXT"},
		{[]string{"send", "--in", "5s", "--at", "2027-01-31T09:30:00Z"}, "--at and --in exclude each other: give one of them"},
		{[]string{"send", "--in", "5s", "--channel", "inbox:x", "--data", "x", "--header", "oops"}, `--header: "oops" is not of the form NAME=VALUE`},
		{[]string{"send", "--in", "5s", "--channel", "inbox:x", "--data", "@/nowhere/x"}, "--data: open /nowhere/x"},
		{[]string{"send", "--in", "5s", "--channel", "inbox:x", "--data", "{", "--content-type", "application/json"}, "--content-type is application/json, but --data is not JSON"},
		{[]string{"list", "--limit", "-1"}, "--limit is -1: it is 0 or more"},
		{[]string{"list", "--server", "ftp://x"}, `--server: "ftp://x" is not the address of a server: write it like http://127.0.0.1:8080`},
		{[]string{"tail", "rabbitmq:x"}, `"rabbitmq:x" is not an inbox: write inbox:NAME`},
		{[]string{"bench", "--rate", "0"}, "--rate is 0: it must be between"},
		{[]string{"bench", "--server", "x", "--store", "y"}, "server store"},
	} {
		r := call(nil, "", test.args...)
		if r.code != exitUsage || !strings.Contains(r.stderr, test.want) || !strings.Contains(r.stderr, "--help") {
			t.Errorf("%v: exit code %d, want %d with %q; standard error:\n%s", test.args, r.code, exitUsage, test.want, r.stderr)
		}
		if r.stdout != "" {
			t.Errorf("%v: standard output is %q", test.args, r.stdout)
		}
	}
}

func TestVersion(t *testing.T) {
	if r := call(nil, "", "version"); r.code != exitOK || !strings.HasPrefix(r.stdout, "postdate ") {
		t.Errorf("got %+v", r)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := call(nil, "", "completion", shell); r.code != exitOK || !strings.Contains(r.stdout, "postdate") {
			t.Errorf("%s: exit code %d, %d bytes", shell, r.code, len(r.stdout))
		}
	}
}
