package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postdate/postdate/internal/testrun"
)

// module is the code that the command is tried on. A test there knows from a file how
// often it has run.
var module = map[string]string{
	"go.mod": "module m\n\ngo 1.26\n",
	"plain/plain_test.go": `package plain

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// turn counts how often a test began.
func turn(t *testing.T) int {
	f, err := os.OpenFile("turns", os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString("x")
	info, _ := f.Stat()
	fmt.Println("turn", info.Size(), "of", os.Getenv("POSTDATE_TEST_SEED"), os.Getenv("POSTDATE_TEST_PARTS"))
	return int(info.Size())
}

func TestFine(t *testing.T) { t.Log("nobody wants to read this") }

func TestFlaky(t *testing.T) {
	t.Log("seed 77; this")
	t.Run("a part", func(t *testing.T) {
		if turn(t) == 1 {
			t.Error("unlucky")
		}
	})
	t.Run("other part", func(t *testing.T) { t.Log("a word of the other part") })
}

func TestAlways(t *testing.T) {
	turn(t)
	t.Error("always")
}

func TestSecondTry(t *testing.T) {
	if n := turn(t); n == 1 || n == 3 {
		t.Error("now and then")
	}
}

func TestPanic(t *testing.T) {
	if turn(t) == 1 {
		panic("boom")
	}
}

func TestExit(t *testing.T) {
	if turn(t) == 1 {
		os.Exit(1)
	}
}

func TestPromise(t *testing.T) {
	if turn(t) == 1 {
		t.Error("PROMISE BROKEN: m-1 is lost")
	}
}

func TestSlow(t *testing.T) {
	if turn(t) == 1 {
		time.Sleep(time.Minute)
	}
}

func TestRace(t *testing.T) {
	if turn(t) > 1 {
		return
	}
	n, done := 0, make(chan bool)
	go func() { n++; close(done) }()
	n++
	<-done
}
`,
	"other/other_test.go": `package other

import "testing"

func TestFine(t *testing.T) {}
`,
	"unbuilt/unbuilt_test.go": `package unbuilt

var x = nothing
`,
}

// write makes the module anew, and goes there.
func write(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range module {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

// call runs the command on the module, and says how often a test of it began.
func call(t *testing.T, args string) (code int, out string, turns int) {
	t.Helper()
	write(t)
	t.Setenv("POSTDATE_TEST_PARTS", "the-parts")
	var b strings.Builder
	code = run(strings.Fields(args), &b, &b)
	if info, err := os.Stat("plain/turns"); err == nil {
		turns = int(info.Size())
	}
	return code, b.String(), turns
}

// What fails once, and in a part alone, passes three times and is reported, with what
// it had printed; of the tests that passed nobody hears.
func TestFlaky(t *testing.T) {
	t.Setenv(testrun.SeedName, "4711")
	code, out, turns := call(t, "-report flaky ./plain ./other -- -vet=off -run TestFlaky/a_part|TestFine")
	shown := `^(ok  \tm/other\t.*\n)?    plain_test.go:\d+: seed 77; this
turn 1 of 4711 the-parts
    plain_test.go:\d+: unlucky
--- FAIL: TestFlaky/a_part \(.*s\)
--- FAIL: TestFlaky \(.*s\)
FAIL
FAIL\tm/plain\t.*
(ok  \tm/other\t.*\n)?` + strings.Repeat(`retest: m/plain TestFlaky failed: it runs again, alone, \d of 3
ok  \tm/plain\t.*
`, 3) + `$`
	if code != 0 || turns != 4 || !regexp.MustCompile(shown).MatchString(out) || !strings.Contains(out, "ok  \tm/other") {
		t.Errorf("it ended with %d after %d turns, and printed:\n%s\nwant:\n%s", code, turns, out, shown)
	}
	report, err := os.ReadFile("flaky")
	want := `^FLAKY m/plain TestFlaky, seed 77. It printed:
        plain_test.go:\d+: seed 77; this
    turn 1 of 4711 the-parts
        plain_test.go:\d+: unlucky
    --- FAIL: TestFlaky/a_part \(.*s\)
    --- FAIL: TestFlaky \(.*s\)
$`
	if err != nil || !regexp.MustCompile(want).Match(report) {
		t.Errorf("the report is, %v:\n%s\nwant:\n%s", err, report, want)
	}
}

// What fails the run, and after how many turns of the test.
func TestFails(t *testing.T) {
	t.Setenv(testrun.SeedName, "4711")
	for _, test := range []struct {
		name, args string
		turns      int
		want       string
	}{
		{"in one try", "./plain -- -run TestSecondTry", 3, "retest: m/plain TestSecondTry failed again"},
		{"a panic", "./plain -- -run TestPanic", 1, "retest: nothing is tried again: m/plain: a panic, said by TestPanic"},
		{"the program ends", "./plain -- -run TestExit", 1, "retest: nothing is tried again: m/plain: its tests ended before their time, in TestExit"},
		{"a broken promise", "./plain -- -run TestPromise", 1, "retest: nothing is tried again: m/plain: a promise is broken, said by TestPromise"},
		{"it takes too long", "./plain -- -timeout 500ms -run TestSlow", 1, "retest: nothing is tried again: m/plain: it took too long, said by TestSlow"},
		{"not built, beside an unlucky one", "./plain ./unbuilt -- -run TestSecondTry", 1, "undefined: nothing"},
		{"not there", "./nowhere -- -count=1", 0, "retest: nothing is tried again"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, out, turns := call(t, strings.Replace(test.args, "--", "-- -vet=off", 1))
			if code != 1 || turns != test.turns || !strings.Contains(out, test.want) || strings.Contains(out, "FLAKY") {
				t.Errorf("it ended with %d after %d turns, want 1 after %d and %q:\n%s", code, turns, test.turns, test.want, out)
			}
		})
	}
}

// A test that fails again fails the run. Where the environment has no seed, the run
// draws one for the first time and for the tries.
func TestFailsAgain(t *testing.T) {
	t.Setenv(testrun.SeedName, "")
	code, out, turns := call(t, "./plain -- -vet=off -run TestAlways")
	if code != 1 || turns != 2 || !strings.HasSuffix(out, "retest: m/plain TestAlways failed again\n") {
		t.Errorf("it ended with %d after %d turns:\n%s", code, turns, out)
	}
	seeds := regexp.MustCompile(`turn \d of (\d+) `).FindAllStringSubmatch(out, -1)
	if len(seeds) != 2 || seeds[0][1] != seeds[1][1] {
		t.Errorf("the seeds are %q", seeds)
	}
}

// A race fails the run at once.
func TestRaceIsNotTriedAgain(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("the race detector needs a C compiler")
	}
	t.Setenv("CGO_ENABLED", "1")
	code, out, turns := call(t, "./plain -- -vet=off -race -run TestRace")
	if code != 1 || turns != 1 || !strings.Contains(out, "nothing is tried again: m/plain: a data race, said by TestRace") {
		t.Errorf("it ended with %d after %d turns:\n%s", code, turns, out)
	}
}

func TestCalledWrongly(t *testing.T) {
	for _, args := range []string{"", "./...", "-- -race", "-floppy ./... --"} {
		var b strings.Builder
		if code := run(strings.Fields(args), io.Discard, &b); code != 2 || b.Len() == 0 {
			t.Errorf("%q: it ended with %d and said %q", args, code, &b)
		}
	}
}

// What is shown of a package that passed, and with -v.
func TestWhatIsShown(t *testing.T) {
	events := []event{
		{Action: "start", Package: "p"}, {Action: "run", Package: "p", Test: "TestA"},
		{Action: "output", Package: "p", Test: "TestA", Output: "=== RUN   TestA\n"},
		{Action: "output", Package: "p", Test: "TestA", Output: "a word\n"},
		{Action: "pass", Package: "p", Test: "TestA"},
		{Action: "output", Package: "p", Output: "PASS\n"},
		{Action: "output", Package: "p", Output: "ok  \tp\t0.1s [no tests to run]\n"},
		{Action: "pass", Package: "p"},
	}
	for verbose, want := range map[bool]string{false: "ok  \tp\t0.1s [no tests to run]\n", true: "a word\nPASS\nok  \tp\t0.1s [no tests to run]\n"} {
		r, shown := newResults(verbose), ""
		for _, e := range events {
			shown += r.step(e)
		}
		if shown != want {
			t.Errorf("with -v=%t it shows %q, want %q", verbose, shown, want)
		}
		if o := r.finish(nil); len(o.failed)+len(o.fatal) > 0 || len(o.passed) != 1 || o.passed[0] != (test{"p", "TestA"}) {
			t.Errorf("it came to %+v", o)
		}
	}
}

// A test that says no seed of its own has the run's; one that is skipped has not passed.
func TestSeedOfTheRun(t *testing.T) {
	f := failure{test{"p", "TestA"}, "once\n"}
	if got, want := f.flaky("4711"), "FLAKY p TestA, seed 4711. It printed:\n    once\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r := newResults(false)
	r.step(event{Action: "run", Package: "p", Test: "TestA"})
	r.step(event{Action: "skip", Package: "p", Test: "TestA"})
	r.step(event{Action: "pass", Package: "p"})
	if o := r.finish(nil); len(o.passed) > 0 {
		t.Errorf("passed are %v", o.passed)
	}
}

// What go test says without a failed test, or with one that is not the whole story.
func TestWhatIsFatal(t *testing.T) {
	said := func(test, text string) event { return event{Action: "output", Package: "p", Test: test, Output: text} }
	did := func(test, action string) event { return event{Action: action, Package: "p", Test: test} }
	ordinary := []event{did("TestA", "run"), said("TestA", "--- FAIL: TestA\n"), did("TestA", "fail"), said("", "FAIL\n"), did("", "fail")}
	for _, test := range []struct {
		name   string
		events []event
		exited error
		want   string // "": nothing
	}{
		{"in good order", ordinary, io.EOF, ""},
		{"a race in another test, which passed", append([]event{said("TestB", "WARNING: DATA RACE\n")}, ordinary...), nil, "p: a data race, said by TestB"},
		{"a broken promise outside of a test", append([]event{said("", "x: PROMISE BROKEN: lost\n")}, ordinary...), nil, "p: a promise is broken, said by the package"},
		{"a panic in a process that a test started", append([]event{said("TestA", "        panic: boom\n")}, ordinary...), nil, "p: a panic, said by TestA"},
		{"a panic that is the first word of a process", append([]event{said("TestA", "    x_test.go:7: panic: boom\n"), said("TestA", "        \n"), said("TestA", "        goroutine 1 [running]:\n")}, ordinary...), nil, "p: a panic, said by TestA"},
		{"a handler that panicked", append([]event{said("", "2026/11/22 http: panic serving 127.0.0.1:1: boom\n")}, ordinary...), nil, "p: a panic, said by the package"},
		{"a publisher that panicked", append([]event{said("TestA", "level=ERROR msg=\"a publisher panicked\" panic=boom\n")}, ordinary...), nil, "p: a panic, said by TestA"},
		{"memory that is gone", append([]event{said("", "fatal error: out of memory\n")}, ordinary...), nil, "p: a panic, said by the package"},
		{"killed while a test ran", []event{did("TestA", "run"), did("TestA", "fail"), did("TestB", "run"), said("", "signal: killed\n"), did("", "fail")}, nil, "ended before their time, in TestB"},
		{"killed between the tests", []event{did("TestA", "run"), did("TestA", "fail"), said("", "signal: killed\n"), did("", "fail")}, nil, "p: its tests ended before their time"},
		{"the test program says no", []event{did("TestA", "run"), did("TestA", "pass"), said("", "FAIL\n"), did("", "fail")}, nil, "without a failed test"},
		{"go test ends in the middle", ordinary[:3], io.EOF, "p: go test ended before it"},
		{"go test fails by itself", nil, io.EOF, "no package failed"},
	} {
		r := newResults(false)
		for _, e := range test.events {
			r.step(e)
		}
		o := r.finish(test.exited)
		said := strings.Join(o.fatal, "; ")
		if (test.want == "") != (said == "") || !strings.Contains(said, test.want) {
			t.Errorf("%s: fatal is %q, want %q", test.name, said, test.want)
		}
		if failed := fmt.Sprint(o.failed); test.want == "" && failed != "[{{p TestA} --- FAIL: TestA\n}]" {
			t.Errorf("%s: failed is %s", test.name, failed)
		}
	}
}
