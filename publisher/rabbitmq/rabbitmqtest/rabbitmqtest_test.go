package rabbitmqtest_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

// Tests rely on this: the address stays, durable data stays, and the broker used is reported.
func TestBrokerStopsKillsAndRestarts(t *testing.T) {
	told := filepath.Join(t.TempDir(), "parts")
	t.Setenv("POSTDATE_TEST_PARTS", told)
	broker := rabbitmqtest.Start(t)
	client := rabbitmqtest.NewClient(t, broker.URL)
	client.Declare("q", nil)

	conn, err := amqp.Dial(broker.URL)
	if err != nil {
		t.Fatal(err)
	}
	cut := conn.NotifyClose(make(chan *amqp.Error, 1))
	broker.CloseAllConnections()
	if err := <-cut; err == nil || err.Code != amqp.ConnectionForced {
		t.Fatalf("the connection ended with %v", err)
	}
	for _, end := range []func(){broker.Stop, broker.Kill} {
		end()
		if conn, err := amqp.Dial(broker.URL); err == nil {
			conn.Close()
			t.Fatal("a broker that has ended takes a connection")
		}
		broker.Restart()
		if n := client.Len("q"); n != 0 {
			t.Fatalf("the queue has %d messages", n)
		}
	}
	text, err := os.ReadFile(told)
	if err != nil || !strings.HasSuffix(string(text), ": real, started by the tests\n") {
		t.Fatalf("told %q, %v", text, err)
	}
}

// A test program that is killed leaves no broker behind.
func TestBrokerDiesWithItsProgram(t *testing.T) {
	if os.Getenv("RABBITMQTEST_VICTIM") != "" {
		fmt.Println("url", rabbitmqtest.Start(t).URL)
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	victim := exec.Command(os.Args[0], "-test.run=^TestBrokerDiesWithItsProgram$")
	victim.Env = append(os.Environ(), "RABBITMQTEST_VICTIM=1", "POSTDATE_TEST_PARTS=")
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	var address string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if url, ok := strings.CutPrefix(lines.Text(), "url "); ok {
			uri, err := amqp.ParseURI(url)
			if err != nil {
				t.Fatal(err)
			}
			address = fmt.Sprintf("%s:%d", uri.Host, uri.Port)
		}
	}
	_ = victim.Wait() // it was killed
	if address == "" {
		t.Fatal("the victim started no broker")
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		conn.Close()
		if time.Now().After(deadline) {
			t.Fatalf("the broker at %s outlives the program that started it", address)
		}
	}
}
