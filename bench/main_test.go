package main

import (
	"context"
	"io"
	"strings"
	"testing"
)

// missing is a peer whose server nobody has.
var missing = entry{name: "missing", program: program{name: "no-such-server", apt: "no-such-package"}}

func TestAMissingServerIsNotLeftOutSilently(t *testing.T) {
	b := &bench{root: t.TempDir(), progress: io.Discard}
	_, err := b.prepare(context.Background(), []entry{missing})
	if err == nil || !strings.Contains(err.Error(), "apt install no-such-package") ||
		!strings.Contains(err.Error(), "-skip-missing") {
		t.Errorf("the error is %v: it has to say what to do", err)
	}
}

func TestAMissingServerIsLeftOutIfThatIsAskedFor(t *testing.T) {
	present := missing
	present.program = program{name: "sh", apt: "dash", versionArgs: []string{"-c", "echo sh 1.0"}}
	var said strings.Builder
	b := &bench{options: options{skipMissing: true}, root: t.TempDir(), progress: &said}
	ready, err := b.prepare(context.Background(), []entry{missing, present})
	if err != nil || len(ready) != 1 || ready[0].version != "sh 1.0" {
		t.Errorf("ready are %+v, the error is %v", ready, err)
	}
	if !strings.Contains(said.String(), "leaving out missing") || len(b.report.leftOut) != 1 {
		t.Errorf("it says %q, and the report has %q", said.String(), b.report.leftOut)
	}
}

func TestVersionsAreShort(t *testing.T) {
	for printed, want := range map[string]string{
		"postdate devel (go1.26.0, linux/amd64)\n":             "postdate devel",
		"Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc": "Redis server v=7.0.15",
		"nats-server: v2.15.2\n":                               "nats-server: v2.15.2",
		"":                                                     "",
	} {
		if got := shortVersion(printed); got != want {
			t.Errorf("of %q it is %q, not %q", printed, got, want)
		}
	}
}

func TestUnknownNamesAreRefused(t *testing.T) {
	for _, o := range []options{
		{peers: "postdate,nobody", workloads: "burst"},
		{peers: "postdate", workloads: "burst,nothing"},
	} {
		err := compare(context.Background(), o, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "-list shows what there is") {
			t.Errorf("the error is %v", err)
		}
	}
}
