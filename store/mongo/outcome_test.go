package mongo

import (
	"context"
	"errors"
	"testing"

	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/postdate/postdate"
)

// TestOutcomes: a write is surely not done only where no server can have begun it.
func TestOutcomes(t *testing.T) {
	written := driver.WriteErrors{{Code: 121, Message: "validation"}}
	for name, c := range map[string]struct {
		err  error
		want postdate.Kind
	}{
		"no server was found":                 {topology.ServerSelectionError{Wrapped: context.DeadlineExceeded}, postdate.KindUnavailable},
		"no connection was free":              {topology.WaitQueueTimeoutError{Wrapped: context.DeadlineExceeded}, postdate.KindUnavailable},
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
