// Package proctest helps tests that start servers as processes: with groups of processes that
// do not outlive the test program, with ports, and with the list of the real parts that tests
// ran against.
package proctest

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Group is a process group that does not outlive the test program. A small shell, the watch,
// reads from a pipe. When the pipe closes, because the program closed it, crashed or was
// killed, the watch kills the group and removes its folder.
type Group struct {
	id    int
	dir   string
	pipe  io.Closer
	watch *exec.Cmd
	once  sync.Once
}

// NewGroup starts the first process of a group that works in dir.
func NewGroup(first *exec.Cmd, dir string) (*Group, error) {
	g := &Group{dir: dir}
	if _, err := g.Start(first); err != nil {
		return nil, err
	}
	g.id = first.Process.Pid
	g.watch = exec.Command("sh", "-c", `read -r _; kill -s KILL -- "-$1"; rm -rf "$2"`, "watch", fmt.Sprint(g.id), dir)
	g.watch.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's interrupt must not reach it
	pipe, err := g.watch.StdinPipe()
	if err == nil {
		err = g.watch.Start()
	}
	if err != nil {
		syscall.Kill(-g.id, syscall.SIGKILL)
		return nil, err
	}
	g.pipe = pipe
	return g, nil
}

// Idle starts a group whose first process does nothing, so that each of the others can end
// without ending the group.
func Idle(dir string) (*Group, error) { return NewGroup(exec.Command("sleep", "infinity"), dir) }

// Start starts a process in the group. The channel is closed when the process ends.
func (g *Group) Start(cmd *exec.Cmd) (exit chan struct{}, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.id}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w (`make deps` installs what tests need)", cmd.Path, err)
	}
	exit = make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is the test's own doing
		close(exit)
	}()
	return exit, nil
}

// End kills the group and removes its folder. A group that is nil has ended.
func (g *Group) End() {
	if g == nil {
		return
	}
	g.once.Do(func() {
		g.pipe.Close()
		_ = g.watch.Wait()
		os.RemoveAll(g.dir) // once more: a dying process may have written
	})
}

const (
	portMin, portMax = 15_000, 32_000
	portTries        = 1_000
)

// Ports finds n loopback ports on which nothing listens and which no other test was given. They
// lie below the range that Linux uses for outgoing connections: one of those, above all one
// that tries to reach the server, could take the port while the server is down.
func Ports(n int) (ports []int, err error) {
	for range portTries {
		if len(ports) == n {
			return ports, nil
		}
		port := portMin + rand.IntN(portMax-portMin)
		if ok, err := reserve(port); err != nil {
			return nil, err
		} else if !ok {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		l.Close()
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("no %d ports are free between %d and %d", n, portMin, portMax)
}

// Closed returns a loopback address on which nothing listens.
func Closed(t testing.TB) string {
	t.Helper()
	ports, err := Ports(1)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0])
}

var reserved struct {
	sync.Mutex
	ports map[int]bool
	locks *os.File // one byte for each port, locked until this program ends, however it ends
}

// reserve reserves a port for this program, among all tests on this machine, and reports
// whether it was free.
func reserve(port int) (bool, error) {
	reserved.Lock()
	defer reserved.Unlock()
	if reserved.locks == nil {
		locks, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("postdate-test-ports-%d", os.Getuid())),
			os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return false, err
		}
		reserved.locks, reserved.ports = locks, map[int]bool{}
	}
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Start: int64(port), Len: 1}
	switch err := syscall.FcntlFlock(reserved.locks.Fd(), syscall.F_SETLK, &lock); {
	case reserved.ports[port] || err == syscall.EAGAIN || err == syscall.EACCES:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("locking a port among the tests on this machine: %w", err)
	}
	reserved.ports[port] = true
	return true, nil
}

// Tail returns the end of a file, for error messages.
func Tail(path string) []byte {
	text, _ := os.ReadFile(path)
	return bytes.TrimSpace(text[max(0, len(text)-4000):])
}

var parts struct {
	sync.Mutex
	told map[string]bool
}

// Part tells the test command which real part a test ran against, with a line in the file that
// POSTDATE_TEST_PARTS names. It writes one line per kind and program; the func line gets the
// text from the part.
func Part(t testing.TB, kind string, line func() (string, error)) {
	t.Helper()
	path := os.Getenv("POSTDATE_TEST_PARTS")
	parts.Lock()
	defer parts.Unlock()
	if path == "" || parts.told[kind] {
		return
	}
	text, err := line()
	if err != nil {
		t.Fatalf("%s cannot be reached: %v", kind, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, text); err != nil {
		t.Fatal(err)
	}
	if parts.told == nil {
		parts.told = map[string]bool{}
	}
	parts.told[kind] = true
}

// DiesWithProgram checks that a server ends when the test program that started it is killed: it
// runs this test again, in a process that starts the server, says its address, and kills itself.
func DiesWithProgram(t *testing.T, start func() (address string)) {
	t.Helper()
	const victim, said = "POSTDATE_TEST_VICTIM", "address "
	if os.Getenv(victim) != "" {
		fmt.Println(said + start())
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), victim+"=1", "POSTDATE_TEST_PARTS=")
	out, _ := cmd.Output() // it is killed
	var address string
	for line := range strings.Lines(string(out)) {
		if text, ok := strings.CutPrefix(line, said); ok {
			address = strings.TrimSpace(text)
		}
	}
	if address == "" {
		t.Fatalf("the victim started no server: %s", out)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		conn.Close()
		if time.Now().After(deadline) {
			t.Fatalf("the server at %s outlives the program that started it", address)
		}
	}
}
