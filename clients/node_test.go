package clients

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/postdate/postdate/internal/proctest"
)

const adminKey = "an-admin-key-of-thirty-two-chars"

// builds is the folder of what is built, once there is one.
var builds string

// built is the path of the program postdate, which is built once.
var built = sync.OnceValues(func() (path string, err error) {
	if builds, err = os.MkdirTemp("", "clients-"); err != nil {
		return "", err
	}
	path = filepath.Join(builds, "postdate")
	build := exec.Command("go", "build", "-o", path, "../cmd/postdate")
	build.Stderr = os.Stderr
	return path, build.Run()
})

func TestMain(m *testing.M) {
	code := m.Run()
	if builds != "" {
		os.RemoveAll(builds)
	}
	os.Exit(code)
}

// startNode starts a node with keys and an embedded store, and returns its URL. Its brokers are
// down, so that the document's examples can be scheduled.
func startNode(t *testing.T) string {
	t.Helper()
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "clients-node-") // the group removes it
	if err != nil {
		t.Fatal(err)
	}
	node := exec.Command(program, "serve", "--http", "127.0.0.1:0", "--rabbitmq", "amqp://"+proctest.Closed(t)+"/", "--kafka", proctest.Closed(t))
	node.Dir, node.Env = dir, append(os.Environ(), "POSTDATE_ADMIN_KEY="+adminKey)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	node.Stderr = log
	defer log.Close()
	said, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	node.Stdout = stdout
	group, err := proctest.NewGroup(node, dir)
	stdout.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the node's log ends so:\n%s", proctest.Tail(log.Name()))
		}
		group.End()
	})
	var ready struct{ HTTP string }
	line, err := bufio.NewReader(said).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil {
		t.Fatalf("the node does not say that it is ready: %v", err)
	}
	return "http://" + ready.HTTP
}
