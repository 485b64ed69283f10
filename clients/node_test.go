package clients

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/postdate/postdate/internal/proctest"
)

const adminKey = "an-admin-key-of-thirty-two-chars"

// builds is the folder of what is built.
var builds string

// built is the path of the program postdate, which is built once.
var built = sync.OnceValues(func() (string, error) {
	path := filepath.Join(builds, "postdate")
	build := exec.Command("go", "build", "-o", path, "../cmd/postdate")
	build.Stderr = os.Stderr
	return path, build.Run()
})

func TestMain(m *testing.M) {
	var err error
	if builds, err = os.MkdirTemp("", "clients-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(builds)
	os.Exit(code)
}

// node is a process of postdate with keys and an embedded store. Its brokers are down, so that the
// document's examples can be scheduled.
type node struct {
	t                 *testing.T
	url, address, dir string
	group             *proctest.Group

	mu      sync.Mutex
	process *os.Process
	exit    chan struct{} // closed when the process has ended
}

// newNode starts a node.
func newNode(t *testing.T) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "clients-node-") // the group removes it
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: dir, address: proctest.Closed(t)}
	n.url = "http://" + n.address
	if n.group, err = proctest.Idle(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the node's log ends so:\n%s", proctest.Tail(filepath.Join(dir, "log")))
		}
		n.group.End()
	})
	if err := n.start(); err != nil {
		t.Fatal(err)
	}
	return n
}

// start starts the node's process, on the same store and port as before, and waits until it is ready.
func (n *node) start() error {
	program, err := built()
	if err != nil {
		return err
	}
	process := exec.Command(program, "serve", "--http", n.address, "--rabbitmq", "amqp://"+proctest.Closed(n.t)+"/", "--kafka", proctest.Closed(n.t))
	process.Dir, process.Env = n.dir, append(os.Environ(), "POSTDATE_ADMIN_KEY="+adminKey)
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	said, stdout, err := os.Pipe()
	if err != nil {
		return err
	}
	defer said.Close()
	process.Stdout, process.Stderr = stdout, log
	exit, err := n.group.Start(process)
	stdout.Close()
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.process, n.exit = process.Process, exit
	n.mu.Unlock()
	if _, err := bufio.NewReader(said).ReadBytes('\n'); err != nil {
		return fmt.Errorf("the node does not say that it is ready: %w", err)
	}
	return nil
}

// kill kills the node's process, and waits until it is dead.
func (n *node) kill() error {
	n.mu.Lock()
	process, exit := n.process, n.exit
	n.mu.Unlock()
	if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-exit
	return nil
}
