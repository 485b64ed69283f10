package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postdate/postdate/cmd/postdate/internal/bench"
)

// These tests run the command as real processes: the test binary runs itself as the command
// (see TestMain).

// commandTimeout ends a command that hangs, so that its test fails by itself.
const commandTimeout = 5 * time.Minute

// command prepares to run the command in an empty folder.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), asCommand+"=1", "TMPDIR="+cmd.Dir)
	return cmd
}

// serving is a running "postdate serve".
type serving struct {
	*exec.Cmd
	ready  readyLine
	stderr bytes.Buffer // to be read when the process has ended
}

// startServe starts a node and returns when it is ready.
func startServe(t *testing.T, env []string, args ...string) *serving {
	t.Helper()
	cmd := command(t, append([]string{"serve", "--http", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(cmd.Env, env...)
	return startNode(t, cmd)
}

// startNode starts a node by cmd and returns when it is ready.
func startNode(t *testing.T, cmd *exec.Cmd) *serving {
	t.Helper()
	s := &serving{Cmd: cmd}
	s.Stderr = &s.stderr
	stdout, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		waited := s.Wait()
		t.Fatalf("no ready line: %v, %v\n%s", err, waited, &s.stderr)
	}
	if err := json.Unmarshal(line, &s.ready); err != nil || s.ready.Msg != "ready" || s.ready.Node == "" || s.ready.Version == "" {
		t.Fatalf("the ready line is %s (%v)", line, err)
	}
	return s
}

func TestServeSaysReadyAndStopsInOrder(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		s := startServe(t, []string{"POSTDATE_NODE_ID=n-7", "POSTDATE_RETENTON=1h", "POSTDATE_RABBITMQ="})
		if s.ready.Node != "n-7" {
			t.Errorf("the node is called %q", s.ready.Node)
		}
		answer, err := http.Get("http://" + s.ready.HTTP + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("it said ready, but /readyz answers %d", answer.StatusCode)
		}
		if err := s.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if err := s.Wait(); err != nil {
			t.Errorf("after %v: %v\n%s", sig, err, &s.stderr)
		}
		if log := s.stderr.String(); !strings.Contains(log, "POSTDATE_RETENTON") || !strings.Contains(log, "did you mean POSTDATE_RETENTION?") {
			t.Errorf("the unknown variable was not logged:\n%s", log)
		}
		if _, err := os.Stat(filepath.Join(s.Dir, "data")); err != nil {
			t.Errorf("the default store is not in ./data: %v", err)
		}
	}
}

// While a request holds up a stop, a second signal ends the node immediately, which it logs.
func TestServeEndsAtASecondSignal(t *testing.T) {
	t.Parallel()
	s := startServe(t, nil)
	conn, err := net.Dial("tcp", s.ready.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/messages HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n", s.ready.HTTP)
	if _, err := bufio.NewReader(conn).ReadBytes('\n'); err != nil { // the server asks for the body
		t.Fatal(err)
	}
	s.Process.Signal(syscall.SIGTERM)
	for stopping := false; !stopping; {
		answer, err := http.Get("http://" + s.ready.HTTP + "/readyz")
		if stopping = err != nil || answer.StatusCode != http.StatusOK; err == nil {
			answer.Body.Close()
		}
	}
	ended := make(chan struct{})
	go func() { s.Wait(); close(ended) }()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for waiting := true; waiting; { // until one comes late enough
		s.Process.Signal(syscall.SIGTERM)
		select {
		case <-again.C:
		case <-ended:
			waiting = false
		}
	}
	if code := s.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(s.stderr.String(), "a second signal came") {
		t.Errorf("it ended with %d, and said:\n%s", code, &s.stderr)
	}
}

// Who stops a whole group of processes, like GNU timeout, sends a signal to some of them twice: they
// stop in order all the same.
func TestServeStopsInOrderAtTwoSignalsAtOnce(t *testing.T) {
	t.Parallel()
	s := startServe(t, nil)
	s.Process.Signal(syscall.SIGTERM)
	s.Process.Signal(os.Interrupt)
	if err := s.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &s.stderr)
	}
}

func TestASecondSignal(t *testing.T) {
	first := time.Now()
	for after, want := range map[time.Duration]bool{0: false, time.Microsecond: false, time.Second - 1: false, time.Second: true, time.Hour: true} {
		if got := endsAtOnce(first, first.Add(after)); got != want {
			t.Errorf("%v after the first: %t", after, got)
		}
	}
}

// A failed start prints one sentence, exits with 1, and shows no password.
func TestServeThatCannotStart(t *testing.T) {
	t.Parallel()
	first := startServe(t, nil)
	defer func() {
		first.Process.Signal(syscall.SIGTERM)
		first.Wait()
	}()
	for _, test := range []struct {
		name string
		args []string
		code int
	}{
		{"address in use", []string{"--http", first.ready.HTTP}, exitFailed},
		{"store in use", []string{"--http", "127.0.0.1:0", "--store", "pebble:" + filepath.Join(first.Dir, "data")}, exitFailed},
		{"unknown store", []string{"--http", "127.0.0.1:0", "--store", "floppy:a"}, exitUsage},
		{"no RabbitMQ URL", []string{"--http", "127.0.0.1:0", "--rabbitmq", "amqp://user:hunter2@host:many/"}, exitUsage},
	} {
		cmd := command(t, append([]string{"serve", "--log-level", "error"}, test.args...)...)
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != test.code {
			t.Errorf("%s: %v, want exit code %d; it said: %s", test.name, err, test.code, out)
		}
		if !bytes.Contains(out, []byte("postdate: ")) || bytes.Contains(out, []byte("hunter2")) {
			t.Errorf("%s: it said: %s", test.name, out)
		}
	}
}

// The demo needs nothing but the binary, and leaves nothing behind.
func TestDemo(t *testing.T) {
	t.Parallel()
	cmd := command(t, "demo")
	start := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := string(out)
	if n := strings.Count(text, " ms\n"); n != demoMessages-1 {
		t.Errorf("%d messages arrived, want %d", n, demoMessages-1)
	}
	if !strings.Contains(text, "All 9 arrived, none early, none twice, and the cancelled one did not.") {
		t.Error("the summary is not there")
	}
	if took := time.Since(start); took < demoLast {
		t.Errorf("it took %v: the last message is due after %v", took, demoLast)
	}
	if left, err := os.ReadDir(cmd.Dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v (%v)", left, err)
	}
	t.Log(text)
}

// An interrupted demo fails: it shows no summary of messages that did not arrive.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	cmd := command(t, "demo")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && !strings.Contains(lines.Text(), "cancelled") {
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		if strings.Contains(lines.Text(), "arrived,") {
			t.Errorf("it said: %s", lines.Text())
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != exitFailed {
		t.Errorf("it ended with %v", err)
	}
	if left, err := os.ReadDir(cmd.Dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v (%v)", left, err)
	}
}

func TestBench(t *testing.T) {
	t.Parallel()
	cmd := command(t, "bench", "--messages", "200", "--duration", "1s", "--rate", "200", "--cancel", "50",
		"--callers", "8", "--batch", "50", "--json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%v\n%s\n%s", err, out, &stderr)
	}
	var report bench.Report
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := map[string]int{
		"schedule, 8 callers": 200, "cancel, 8 callers": 50, "schedule, batches of 50": 200, "drain, all due at one instant": 200,
		"steady load: calls, from their planned time": 200, "steady load: arrivals": 200,
	}
	for _, row := range report.Rows {
		if row.Messages != want[row.Phase] {
			t.Errorf("%s: %d messages, want %d", row.Phase, row.Messages, want[row.Phase])
		}
		delete(want, row.Phase)
		if a := row.Arrivals; a != nil && *a != (bench.Arrivals{}) {
			t.Errorf("%s: %+v", row.Phase, *a)
		}
	}
	if len(want) > 0 {
		t.Errorf("these phases are missing: %v", want)
	}
	if left, err := os.ReadDir(cmd.Dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v (%v)", left, err)
	}
}

// Against a running server, bench cancels what it left pending.
func TestBenchOnAServer(t *testing.T) {
	t.Parallel()
	s := startServe(t, nil)
	defer func() {
		s.Process.Signal(syscall.SIGTERM)
		s.Wait()
	}()
	cmd := command(t, "bench", "--server", s.ready.HTTP, "--messages", "100", "--duration", "1s", "--rate", "50", "--backlog", "300,500")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, size := range []string{"300", "500"} {
		if !strings.Contains(string(out), "steady load above "+size+": arrivals") {
			t.Errorf("nothing is measured above %s:\n%s", size, out)
		}
	}
	t.Logf("%s", out)
	if r := call(nil, "", "list", "--server", s.ready.HTTP, "--status", "PENDING", "--json"); r.code != exitOK || r.stdout != "" {
		t.Errorf("still pending: %+v", r)
	}
}
