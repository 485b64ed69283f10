package clients

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postdate/postdate/client/receivers"
)

// The steps of the Go client's README deliver its first message, in a module of their own.
func TestGoPackage(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../client/README.md")
	if err != nil {
		t.Fatal(err)
	}
	user := &workshop{t: t, dir: t.TempDir()}
	repository, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(repository, filepath.Join(user.dir, "postdate")); err != nil {
		t.Fatal(err)
	}
	user.write("first.go", regexp.MustCompile("(?s)```go\n(package main.*?)```").FindSubmatch(readme)[1])
	steps := regexp.MustCompile("(?s)```sh\n(go mod init.*?)```").FindSubmatch(readme)[1]
	said, _ := user.run("env", "POSTDATE_SERVER="+newNode(t).url, "POSTDATE_API_KEY="+adminKey, "sh", "-ec", string(steps))
	if !strings.Contains(said, "arrived") || !strings.Contains(said, `{"order": 42}`) {
		t.Errorf("the first message does not arrive: %s", said)
	}
	if module := user.read("go.mod"); bytes.Contains(module, []byte("pebble")) {
		t.Errorf("the client brings the node's code: %s", module)
	}
}

// The Go client's receivers read what those of all clients read.
func TestGoReceivers(t *testing.T) {
	vectors := readVectors(t)
	for _, v := range vectors.Webhooks {
		header := headerOf(v.Headers)
		webhooks, err := receivers.NewWebhooks(v.Secrets...)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(v.Now)) // sets the bubble's clock
			id, err := webhooks.Verify(header, []byte(v.Body))
			if (err == nil) != v.Valid || v.Valid && id != header.Get("Webhook-Id") {
				t.Errorf("%s: %q %v, and it is %t that this is valid", v.Name, id, err, v.Valid)
			}
		})
	}
	for _, v := range vectors.Headers {
		d, err := receivers.ReadHeaders(v.Headers, v.MessageID)
		if (err == nil) != (v.Want != nil) || v.Want != nil && !reflect.DeepEqual(d, *v.Want) {
			t.Errorf("%s: %+v %v, want %+v", v.Name, d, err, v.Want)
		}
	}
}
