package postdate_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/postdate/postdate"
)

func TestFailed(t *testing.T) {
	m := postdate.Message{
		Key: postdate.Key{Bucket: 3, Tenant: "acme", ScheduleID: "a"}, Channel: "https://host/hook?token=1", ExecutionTime: 5, CreatedAt: 4,
		ExpiresAt: 99, Payload: []byte("p"), ContentType: "text/plain", PartitionKey: "k", Priority: postdate.PriorityHigh,
		Moved: postdate.Move{At: 1, From: 2}, Labels: []string{"l"}, FailureChannel: "inbox:failed", Retry: postdate.RetryPolicy{MaxAttempts: 3},
		Headers: []postdate.Header{{"Authorization", "s"}, {"cookie", "s"}, {"own", "v"}, {"Postdate-Failed-Id", "forged"}},
	}
	before := slices.Clone(m.Headers)
	got := m.Failed(postdate.Failure{Version: 7, To: "inbox:failed", At: 50, Attempts: 2, Reason: "no:\r\n\x00\xff ", PossibleDuplicate: true})
	want := []postdate.Header{
		{"own", "v"}, {"postdate-failed-attempts", "2"}, {"postdate-failed-channel", "https://host"}, {"postdate-failed-id", "a"},
		{"postdate-failed-possible-duplicate", "true"}, {"postdate-failed-reason", "no:   \uFFFD"},
		{"postdate-failed-time", postdate.Time(50).String()},
	}
	if !slices.Equal(got.Headers, want) {
		t.Errorf("its headers are %q, want %q", got.Headers, want)
	}
	if !slices.Equal(m.Headers, before) {
		t.Error("the headers of the failed message were changed")
	}
	if got.ScheduleID != "a!7" || got.Bucket != 3 || got.Channel != "inbox:failed" || got.FailureChannel != "" || got.ExecutionTime != 50 ||
		got.CreatedAt != 50 || got.ExpiresAt != 0 || got.Retry != (postdate.RetryPolicy{}) || got.Moved != (postdate.Move{}) {
		t.Errorf("it is %+v", got)
	}
	if string(got.Payload) != "p" || got.PartitionKey != "k" || got.Priority != postdate.PriorityHigh || !slices.Equal(got.Labels, m.Labels) {
		t.Errorf("it lost what the failed message had: %+v", got)
	}
	again := got.Failed(postdate.Failure{To: "inbox:x"})
	if n := len(again.Headers); n != 6 {
		t.Errorf("headers of an earlier failure are kept: %q", again.Headers)
	}
}

// What failed messages left is no occurrence of a series.
func TestIDsOfFailures(t *testing.T) {
	const occurrence = "s/2027-01-31T09:30:00.000Z"
	for id, client := range map[string]string{"a!0": "a", "a!18446744073709551615": "a", occurrence + "!7": "s",
		strings.Repeat("x", postdate.ScheduleIDBytesMax) + "!1": strings.Repeat("x", postdate.ScheduleIDBytesMax)} {
		key := postdate.Key{ScheduleID: id}
		if err := postdate.CheckMessageID(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
		if err := postdate.CheckScheduleID(id); postdate.KindOf(err) != postdate.KindInvalid ||
			!strings.Contains(err.Error(), "failure channel") {
			t.Errorf("%q: %v", id, err)
		}
		if _, is := key.OfSeries(); is || !key.OfFailure() || key.SeriesID() != id || key.ClientID() != client || key.Occurrence() != 0 {
			t.Errorf("%q is taken for something else", id)
		}
	}
	for _, bad := range []string{"!", "!1", "a!", "a!01", "a!-1", "a!+1", "a!18446744073709551616", "a!1!2", "a!x", "a/b!1", "..!1",
		"a!1/2027-01-31T09:30:00.000Z"} {
		for _, check := range []func(string) error{postdate.CheckMessageID, postdate.CheckScheduleID} {
			if err := check(bad); postdate.KindOf(err) != postdate.KindInvalid || strings.Contains(err.Error(), "failure channel") {
				t.Errorf("%q: %v", bad, err)
			}
		}
	}
	if k := (postdate.Key{ScheduleID: occurrence}); k.ClientID() != "s" || k.OfFailure() {
		t.Error("an occurrence is taken for a failure")
	}
}

func TestTelling(t *testing.T) {
	h := postdate.Header{Name: postdate.HeaderFailedID, Value: "a"}
	for id, want := range map[string]bool{"a!7": true, "a": false} {
		m := postdate.Message{Key: postdate.Key{ScheduleID: id}}
		if m.Telling(h) != want || m.Telling(postdate.Header{Name: "postdate-attempt"}) {
			t.Errorf("%s: want %t", id, want)
		}
	}
}
