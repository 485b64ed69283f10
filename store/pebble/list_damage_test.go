package pebble

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Messages that cannot be decoded are left out of lists, and reported: what comes after them is found.
func TestListBesideDamagedMessages(t *testing.T) {
	c := openConfig(t.TempDir())
	var log bytes.Buffer
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 5 {
		m := openMessage(i)
		m.Labels = []string{"run"}
		if r := s.Insert(t.Context(), []postdate.Message{m}); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
		key := map[int][]byte{1: messageKey(nil, m.Key, m.ExecutionTime), 3: stateKey(nil, m.Key)}[i]
		if key == nil {
			continue
		}
		if err := s.db.Set(key, []byte{layout, 255, 255}, lsm.Sync); err != nil {
			t.Fatal(err)
		}
	}
	for _, label := range []string{"", "run"} {
		log.Reset()
		page, err := s.List(t.Context(), store.ListQuery{Tenant: postdate.DefaultTenant, Label: label, Limit: 10})
		if err != nil || len(page.Records) != 3 || page.Next != nil {
			t.Errorf("a list by the label %q has %d messages: %v", label, len(page.Records), err)
		}
		text := log.String()
		if !strings.Contains(text, "message cannot be read") || !strings.Contains(text, "scheduleId=m-1") ||
			!strings.Contains(text, "more listed messages cannot be read\" count=1") {
			t.Errorf("the log says %q", text)
		}
	}
}
