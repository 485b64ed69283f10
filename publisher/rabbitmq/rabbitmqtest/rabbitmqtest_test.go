package rabbitmqtest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate/internal/proctest"
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
	proctest.DiesWithProgram(t, func() string {
		uri, err := amqp.ParseURI(rabbitmqtest.Start(t).URL)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s:%d", uri.Host, uri.Port)
	})
}
