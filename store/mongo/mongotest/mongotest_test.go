package mongotest_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate/internal/proctest"
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
	proctest.DiesWithProgram(t, func() string { return mongotest.Start(t, 1).Address(0) })
}
