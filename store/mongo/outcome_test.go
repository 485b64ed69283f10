package mongo

import (
	"context"
	"errors"
	"testing"
	"time"

	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/postdate/postdate"
)

// TestOutcomes: a write is surely not done only if no server can have begun it.
func TestOutcomes(t *testing.T) {
	written := driver.WriteErrors{{Code: 121, Message: "validation"}}
	for name, c := range map[string]struct {
		err  error
		want postdate.Kind
	}{
		"no server was found":                 {topology.ServerSelectionError{Wrapped: context.DeadlineExceeded}, postdate.KindUnavailable},
		"no connection was free":              {topology.WaitQueueTimeoutError{Wrapped: context.DeadlineExceeded}, postdate.KindUnavailable},
		"another connection had failed":       {poolCleared{}, postdate.KindUnavailable},
		"the time was over":                   {context.DeadlineExceeded, postdate.KindUnknown},
		"the caller gave up":                  {context.Canceled, postdate.KindUnknown},
		"the connection was lost":             {driver.CommandError{Labels: []string{"NetworkError"}}, postdate.KindUnknown},
		"the primary stepped down":            {driver.CommandError{Code: 189, Labels: []string{"RetryableWriteError"}}, postdate.KindUnknown},
		"it was no primary":                   {driver.CommandError{Code: 10107}, postdate.KindUnknown},
		"the majority did not answer":         {driver.WriteException{WriteConcernError: &driver.WriteConcernError{Code: 64}}, postdate.KindUnknown},
		"the majority did not answer a batch": {driver.BulkWriteException{WriteConcernError: &driver.WriteConcernError{Code: 91}, WriteErrors: []driver.BulkWriteError{{WriteError: written[0]}}}, postdate.KindUnknown},
		"the server's time was over":          {driver.CommandError{Code: 50, Name: "MaxTimeMSExpired"}, postdate.KindUnknown},
		"the server refused the document":     {driver.WriteException{WriteErrors: written}, postdate.KindInternal},
		"the server refused the command":      {driver.CommandError{Code: 13}, postdate.KindInternal},
		"the disk is full":                    {driver.CommandError{Code: 14031}, postdate.KindFull},
		"nobody knows what it is":             {errors.New("?"), postdate.KindUnknown},
	} {
		if got := postdate.KindOf(writeError("writing", c.err)); got != c.want {
			t.Errorf("%s: the kind is %q, want %q", name, got, c.want)
		}
		if got := postdate.KindOf(readError("reading", c.err)); got != postdate.KindUnavailable {
			t.Errorf("%s, of a read: the kind is %q, want %q", name, got, postdate.KindUnavailable)
		}
	}
}

// poolCleared is like the driver's own error of that kind, which it does not export.
type poolCleared struct{}

func (poolCleared) Error() string {
	return "connection pool was cleared because another operation failed"
}
func (poolCleared) Retryable() bool { return true }

// TestRepeatForgetsNoAttempt: once an attempt may have been carried out, no later one
// can say that it surely was not.
func TestRepeatForgetsNoAttempt(t *testing.T) {
	lost := driver.CommandError{Labels: []string{"NetworkError"}}
	unfound := topology.ServerSelectionError{Wrapped: context.DeadlineExceeded}
	for name, c := range map[string]struct {
		errs []error // of the attempts; the last one's stays
		want postdate.Kind
	}{
		"never sent":             {[]error{poolCleared{}, unfound}, postdate.KindUnavailable},
		"no answer, no server":   {[]error{lost, unfound}, postdate.KindUnknown},
		"no answer, no place":    {[]error{lost, driver.CommandError{Code: 14031}}, postdate.KindUnknown},
		"no answer, not allowed": {[]error{lost, driver.CommandError{Code: 13}}, postdate.KindUnknown},
		"no answer twice":        {[]error{lost, lost}, postdate.KindUnknown},
		"not allowed at once":    {[]error{driver.CommandError{Code: 13}}, postdate.KindInternal},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		s, attempts := &Store{c: Config{Attempt: time.Minute}}, 0
		err := s.repeat(ctx, func(context.Context) error {
			attempts++
			return c.errs[min(attempts, len(c.errs))-1]
		})
		cancel()
		if got := postdate.KindOf(writeError("writing", err)); got != c.want {
			t.Errorf("%s: the kind is %q, want %q", name, got, c.want)
		}
	}
	taken := driver.BulkWriteException{WriteErrors: []driver.BulkWriteError{{WriteError: driver.WriteError{Code: codeTaken}}}}
	if err := afterAll(lost, taken); !driver.IsDuplicateKeyError(err) {
		t.Errorf("what the server says of each item of a batch is lost: %v", err)
	}
}
