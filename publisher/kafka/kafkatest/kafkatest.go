// Package kafkatest gives tests a real Kafka broker, and a client that inspects its topics.
//
// A test that only needs an address calls [URI]; one that stops, kills or pauses the broker
// calls [Start] and gets a broker of its own. Both fail the test if they can get no broker:
// they never skip. Everything listens on the loopback interface, keeps its data in a temporary
// folder, and is gone when the test program ends, however it ends. Kafka itself comes from
// Maven Central and is kept in the user's cache folder.
package kafkatest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postdate/postdate/internal/proctest"
)

const (
	startTimeout = 3 * time.Minute // it takes 4 s on an idle machine
	stopTimeout  = 2 * time.Minute

	started = "started by the tests"
)

// Broker is a Kafka that a test started: one node, both broker and controller. Its methods fail
// the test if they cannot do their work.
type Broker struct {
	// Address is the broker's host and port. Restarts do not change it.
	Address string
	// Secure is the host and port at which it speaks TLS; "" unless StartTLS started it.
	Secure string

	tls   TLS
	t     testing.TB
	dir   string
	jars  string
	group *proctest.Group
	java  *exec.Cmd
	exit  chan struct{} // closed when the present run has ended
}

// TLS names files in PEM.
type TLS struct {
	Both string // the broker's certificate and key
	CA   string
}

// Start starts a broker of the test's own, and stops it when the test ends.
func Start(t testing.TB) *Broker { t.Helper(); return StartTLS(t, TLS{}) }

// StartTLS is Start, with a broker that also speaks TLS. There, clients must show a certificate
// that the CA has signed.
func StartTLS(t testing.TB, secure TLS) *Broker {
	t.Helper()
	b, err := start(secure)
	if err != nil {
		t.Fatal(err)
	}
	b.t = t
	t.Cleanup(b.group.End)
	part(t, started)
	return b
}

var shared = sync.OnceValues(func() (*Broker, error) { return start(TLS{}) })

// URI returns the address of a broker that tests share: the one named by the environment
// variable POSTDATE_TEST_KAFKA, or else one that is started once for the test program. Its
// users choose topic names of their own.
func URI(t testing.TB) string {
	t.Helper()
	if address := os.Getenv("POSTDATE_TEST_KAFKA"); address != "" {
		if err := answers(address); err != nil {
			t.Fatalf("the broker at the address in POSTDATE_TEST_KAFKA cannot be reached: %v", err)
		}
		part(t, "at the address in POSTDATE_TEST_KAFKA")
		return address
	}
	b, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	part(t, started)
	return b.Address
}

func start(secure TLS) (*Broker, error) {
	jars, err := jars()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kafkatest-")
	if err != nil {
		return nil, err
	}
	b := &Broker{dir: dir, jars: jars, tls: secure}
	if err := b.lay(); err != nil {
		b.group.End()
		os.RemoveAll(dir)
		return nil, err
	}
	if err := b.run(); err != nil {
		b.group.End()
		return nil, err
	}
	return b, nil
}

// properties configures a node that is both broker and controller, whose topics are created
// explicitly, and whose groups and transactions need no second node. A killed node is admitted
// again only when its old session has expired, hence the short session.
const properties = `process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:%[2]d
listeners=PLAINTEXT://127.0.0.1:%[1]d,CONTROLLER://127.0.0.1:%[2]d%[4]s
advertised.listeners=PLAINTEXT://127.0.0.1:%[1]d%[4]s
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL
log.dirs=%[3]s
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=200
`

// secureProperties are those of the listener that speaks TLS.
const secureProperties = `ssl.keystore.type=PEM
ssl.keystore.location=%s
ssl.truststore.type=PEM
ssl.truststore.location=%s
ssl.client.auth=required
`

// lay writes the broker's files, picks its ports and formats its storage.
func (b *Broker) lay() error {
	ports, err := proctest.Ports(3)
	if err != nil {
		return err
	}
	b.Address = fmt.Sprintf("127.0.0.1:%d", ports[0])
	also := ""
	if b.tls != (TLS{}) {
		b.Secure = fmt.Sprintf("127.0.0.1:%d", ports[2])
		also = ",SSL://" + b.Secure
	}
	text := fmt.Sprintf(properties, ports[0], ports[1], b.path("data"), also)
	if also != "" {
		text += fmt.Sprintf(secureProperties, b.tls.Both, b.tls.CA)
	}
	if err := os.WriteFile(b.path("server.properties"), []byte(text), 0o600); err != nil {
		return err
	}
	if b.group, err = proctest.Idle(b.dir); err != nil {
		return err
	}
	format := b.command("kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw",
		"-c", b.path("server.properties"), "--standalone")
	if out, err := format.CombinedOutput(); err != nil {
		return fmt.Errorf("format Kafka's storage: %w\n%s", err, out)
	}
	return nil
}

// command runs a class of Kafka. The small heap and the quick compiler suit tests, which start
// brokers often.
func (b *Broker) command(class string, args ...string) *exec.Cmd {
	java := []string{"-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
		"-cp", filepath.Join(b.jars, "*"), class}
	cmd := exec.Command("java", append(java, args...)...)
	cmd.Dir = b.dir
	return cmd
}

// run starts the broker and waits until it answers.
func (b *Broker) run() error {
	out, err := os.OpenFile(b.path("out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	b.java = b.command("kafka.Kafka", b.path("server.properties"))
	b.java.Stdout, b.java.Stderr = out, out
	if b.exit, err = b.group.Start(b.java); err != nil {
		return err
	}
	deadline := time.Now().Add(startTimeout)
	for {
		err := answers(b.Address)
		if err == nil {
			return nil
		}
		select {
		case <-b.exit:
			return fmt.Errorf("the broker ended at its start:\n%s", proctest.Tail(b.path("out")))
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the broker does not answer after %s: %w\n%s",
				startTimeout, err, proctest.Tail(b.path("out")))
		}
	}
}

// answers returns an error if the broker answers no requests.
func answers(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.RequestRetries(0), kgo.DisableClientMetrics())
	if err != nil {
		return err
	}
	defer cl.Close()
	return cl.Ping(ctx)
}

// Stop stops the broker in an orderly way and returns when it has ended.
func (b *Broker) Stop() { b.t.Helper(); b.end(syscall.SIGTERM) }

// Kill ends the broker with SIGKILL.
func (b *Broker) Kill() { b.t.Helper(); b.end(syscall.SIGKILL) }

// Pause stops the broker's process, like a machine that swaps or sleeps: its connections stay
// open and nothing answers. Cont continues it.
func (b *Broker) Pause() { b.t.Helper(); b.signal(syscall.SIGSTOP) }

// Cont continues a broker that Pause has stopped.
func (b *Broker) Cont() { b.t.Helper(); b.signal(syscall.SIGCONT) }

// Restart starts the broker again after Stop or Kill, at the same address and with
// its data, and returns when it answers.
func (b *Broker) Restart() {
	b.t.Helper()
	if err := b.run(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *Broker) signal(sig syscall.Signal) {
	b.t.Helper()
	if err := b.java.Process.Signal(sig); err != nil {
		b.t.Fatalf("signal the broker: %v", err)
	}
}

func (b *Broker) end(sig syscall.Signal) {
	b.t.Helper()
	b.signal(sig)
	select {
	case <-b.exit:
	case <-time.After(stopTimeout):
		b.t.Fatalf("the broker has not ended %s after %v:\n%s", stopTimeout, sig, proctest.Tail(b.path("out")))
	}
}

func (b *Broker) path(name string) string { return filepath.Join(b.dir, name) }
