// Package rabbitmqtest gives tests a real RabbitMQ broker, and a client that inspects its
// queues.
//
// A test that only needs an address calls [URL]; one that stops, kills or alarms the broker
// calls [Start] and gets a broker of its own. Both fail the test if they can get no broker:
// they never skip. Everything listens on the loopback interface, keeps its data in a temporary
// folder, and is gone when the test program ends, however it ends.
package rabbitmqtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate/internal/proctest"
)

const (
	// programs is where Debian's package puts RabbitMQ. The wrappers in /usr/sbin do not work
	// here, because they switch the user.
	programs = "/usr/lib/rabbitmq/bin"

	startTimeout = 3 * time.Minute // it takes 3 s on an idle machine
	stopTimeout  = 2 * time.Minute
)

// Broker is a RabbitMQ that a test started. Its methods fail the test if they cannot do their
// work.
type Broker struct {
	// URL is the broker's address with its credentials. Restarts do not change it.
	URL string
	// Secure is the host and port at which it speaks TLS; "" unless StartTLS started it.
	Secure string

	tls   TLS
	t     testing.TB
	dir   string
	env   []string
	group *proctest.Group
	exit  chan struct{} // closed when the present run has ended
}

// TLS names files in PEM.
type TLS struct{ Cert, Key, CA string }

// Start starts a broker of the test's own, and stops it when the test ends.
func Start(t testing.TB) *Broker { t.Helper(); return StartTLS(t, TLS{}) }

// StartTLS is Start, with a broker that also speaks TLS. There, clients must show a certificate
// that the CA has signed; it also is their login (EXTERNAL), as the user of its common name.
func StartTLS(t testing.TB, secure TLS) *Broker {
	t.Helper()
	b, err := start(secure)
	if err != nil {
		t.Fatal(err)
	}
	b.t = t
	t.Cleanup(func() {
		if t.Failed() {
			b.tell()
		}
		b.group.End()
	})
	part(t, b.URL, "started by the tests")
	return b
}

// tell logs the end of the broker's log. Its folder is deleted, so nothing else shows the cause
// of a failure.
func (b *Broker) tell() {
	logs, _ := filepath.Glob(b.path("log/*"))
	for _, name := range logs {
		b.t.Logf("the broker's %s ends with:\n%s", filepath.Base(name), proctest.Tail(name))
	}
}

var shared = sync.OnceValues(func() (*Broker, error) { return start(TLS{}) })

// URL returns the address of a broker that tests share: the one named by the environment
// variable POSTDATE_TEST_RABBITMQ, or else one that is started once for the test program. Its
// users choose queue names of their own.
func URL(t testing.TB) string {
	t.Helper()
	if url := os.Getenv("POSTDATE_TEST_RABBITMQ"); url != "" {
		part(t, url, "at the address in POSTDATE_TEST_RABBITMQ")
		return url
	}
	b, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	part(t, b.URL, "started by the tests")
	return b.URL
}

func start(secure TLS) (*Broker, error) {
	if _, err := os.Stat(filepath.Join(programs, "rabbitmq-server")); err != nil {
		return nil, fmt.Errorf("this test needs a RabbitMQ broker: run `make deps` to install one, "+
			"or name one in POSTDATE_TEST_RABBITMQ (%w)", err)
	}
	dir, err := os.MkdirTemp("", "rabbitmqtest-")
	if err != nil {
		return nil, err
	}
	b := &Broker{dir: dir, tls: secure}
	if err := b.lay(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	if err := b.run(); err != nil {
		b.group.End()
		return nil, err
	}
	return b, nil
}

const secureConf = `listeners.ssl.1 = %s
ssl_options.cacertfile = %s
ssl_options.certfile = %s
ssl_options.keyfile = %s
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
ssl_cert_login_from = common_name
`

// lay writes the broker's files, picks its ports and starts its port mapper.
func (b *Broker) lay() error {
	ports, err := proctest.Ports(4)
	if err != nil {
		return err
	}
	for _, name := range []string{"home", "log", "mnesia"} {
		if err := os.Mkdir(b.path(name), 0o700); err != nil {
			return err
		}
	}
	conf, plugins := "log.file.level = warning\nmax_message_size = 1000000\n", "[].\n"
	if b.tls != (TLS{}) {
		b.Secure, plugins = fmt.Sprintf("127.0.0.1:%d", ports[3]), "[rabbitmq_auth_mechanism_ssl].\n"
		conf += fmt.Sprintf(secureConf, b.Secure, b.tls.CA, b.tls.Cert, b.tls.Key)
	}
	for name, text := range map[string]string{
		"env.conf": "", "enabled_plugins": plugins, "rabbitmq.conf": conf,
	} {
		if err := os.WriteFile(b.path(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	b.URL = fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", ports[0])
	b.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + b.path("home"), "LANG=C.UTF-8",
		fmt.Sprintf("RABBITMQ_NODENAME=postdate%d@localhost", ports[0]),
		"RABBITMQ_CONF_ENV_FILE=" + b.path("env.conf"),
		"RABBITMQ_CONFIG_FILE=" + b.path("rabbitmq.conf"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + b.path("enabled_plugins"),
		"RABBITMQ_MNESIA_BASE=" + b.path("mnesia"),
		"RABBITMQ_LOG_BASE=" + b.path("log"),
		"RABBITMQ_PID_FILE=" + b.path("pid"),
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		fmt.Sprintf("RABBITMQ_NODE_PORT=%d", ports[0]),
		fmt.Sprintf("RABBITMQ_DIST_PORT=%d", ports[1]),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		fmt.Sprintf("ERL_EPMD_PORT=%d", ports[2]),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
	}
	mapper := exec.Command("epmd", "-port", fmt.Sprint(ports[2]), "-address", "127.0.0.1")
	mapper.Env = b.env
	b.group, err = proctest.NewGroup(mapper, b.dir)
	return err
}

// run starts the broker and waits until it takes connections.
func (b *Broker) run() error {
	out, err := os.OpenFile(b.path("log/out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	server := exec.Command(filepath.Join(programs, "rabbitmq-server"))
	server.Env, server.Dir, server.Stdout, server.Stderr = b.env, b.dir, out, out
	if b.exit, err = b.group.Start(server); err != nil {
		return err
	}
	deadline := time.Now().Add(startTimeout)
	for {
		conn, err := amqp.Dial(b.URL)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-b.exit:
			return fmt.Errorf("the broker ended at its start:\n%s", proctest.Tail(b.path("log/out")))
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the broker takes no connection after %s: %w\n%s",
				startTimeout, err, proctest.Tail(b.path("log/out")))
		}
	}
}

// Stop stops the broker in an orderly way and returns when it has ended.
func (b *Broker) Stop() { b.t.Helper(); b.signal(syscall.SIGTERM) }

// Kill ends the broker's virtual machine with SIGKILL: messages that were not on disk are lost,
// as in a power cut. Queues and exchanges are not: RabbitMQ promises that they are on disk, but
// soon after a start they may not be, so Kill has them synced first.
func (b *Broker) Kill() {
	b.t.Helper()
	b.Control("eval", "mnesia:sync_log().")
	b.signal(syscall.SIGKILL)
}

func (b *Broker) signal(sig syscall.Signal) {
	b.t.Helper()
	text, err := os.ReadFile(b.path("pid"))
	if err != nil {
		b.t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		b.t.Fatalf("pid file %q: %v", text, err)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		b.t.Fatalf("signal the broker, process %d: %v", pid, err)
	}
	select {
	case <-b.exit:
	case <-time.After(stopTimeout):
		b.t.Fatalf("the broker has not ended %s after %v:\n%s", stopTimeout, sig, proctest.Tail(b.path("log/out")))
	}
}

// Restart starts the broker again after Stop or Kill, at the same address and
// with its data, and returns when it takes connections.
func (b *Broker) Restart() {
	b.t.Helper()
	if err := b.run(); err != nil {
		b.t.Fatal(err)
	}
}

// CloseAllConnections makes the broker disconnect every client.
func (b *Broker) CloseAllConnections() {
	b.t.Helper()
	b.Control("close_all_connections", "by the test")
}

// SetMemoryAlarm raises or clears the memory alarm, under which the broker
// blocks every connection that publishes.
func (b *Broker) SetMemoryAlarm(on bool) {
	b.t.Helper()
	mark := "0.9"
	if on {
		mark = "0"
	}
	b.Control("set_vm_memory_high_watermark", mark)
}

// Control runs rabbitmqctl with the arguments, which takes a second or two.
func (b *Broker) Control(args ...string) {
	b.t.Helper()
	ctl := exec.Command(filepath.Join(programs, "rabbitmqctl"), args...)
	ctl.Env, ctl.Dir = b.env, b.dir
	if out, err := ctl.CombinedOutput(); err != nil {
		b.t.Fatalf("rabbitmqctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (b *Broker) path(name string) string { return filepath.Join(b.dir, name) }
