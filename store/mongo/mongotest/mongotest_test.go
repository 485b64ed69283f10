package mongotest_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate/store/mongo/mongotest"
)

// What a test builds on: what was written survives the death of the primary, and
// the part that was used is told.
func TestSetSurvivesItsPrimary(t *testing.T) {
	told := filepath.Join(t.TempDir(), "parts")
	t.Setenv("POSTDATE_TEST_PARTS", told)
	set := mongotest.Start(t, 3)
	client, err := mongo.Connect(options.Client().ApplyURI(set.URI()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.Background())
	for i := range 3 { // one without its data yet takes no part when the primary is lost
		if !hasData(t, set.Address(i)) {
			t.Errorf("member %d has no data yet", i)
		}
	}
	c := client.Database("test").Collection("c")
	insert := func(id int) {
		t.Helper()
		// A driver repeats a write once, which may not outlast the change of the primary.
		// What became of it then is seen by writing it again.
		for late := time.Now().Add(time.Minute); ; {
			_, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}})
			if err == nil || mongo.IsDuplicateKeyError(err) {
				return
			}
			if time.Now().After(late) {
				t.Fatal(err)
			}
		}
	}
	insert(1)
	first := set.Primary()
	set.Kill(first)
	insert(2)
	set.Restart(first)
	set.StepDown()
	insert(3)
	if n, err := c.CountDocuments(t.Context(), bson.D{}); err != nil || n != 3 {
		t.Fatalf("there are %d documents, %v; want 3", n, err)
	}
	text, err := os.ReadFile(told)
	if err != nil || !strings.HasPrefix(string(text), "mongodb: real mongod ") || !strings.HasSuffix(string(text), ", 3 members, started by the tests\n") {
		t.Fatalf("told %q, %v", text, err)
	}
}

func hasData(t *testing.T, address string) bool {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + address + "/?directConnection=true"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.Background())
	var hello struct{ IsWritablePrimary, Secondary bool }
	if err := client.Database("admin").RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		t.Fatal(err)
	}
	return hello.IsWritablePrimary || hello.Secondary
}

// A test program that is killed leaves no server behind.
func TestServersDieWithTheirProgram(t *testing.T) {
	if os.Getenv("MONGOTEST_VICTIM") != "" {
		fmt.Println("address", mongotest.Start(t, 1).Address(0))
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	victim := exec.Command(os.Args[0], "-test.run=^TestServersDieWithTheirProgram$")
	victim.Env = append(os.Environ(), "MONGOTEST_VICTIM=1", "POSTDATE_TEST_PARTS=")
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	var address string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if a, ok := strings.CutPrefix(lines.Text(), "address "); ok {
			address = a
		}
	}
	_ = victim.Wait() // it was killed
	if address == "" {
		t.Fatal("the victim started no server")
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
