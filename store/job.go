package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postdate/postdate"
)

// Jobs keeps the jobs of tenants, for all nodes. A job belongs to the bucket of its key, whose owner works on it.
type Jobs interface {
	// CreateJob makes a job durable, at version 1. A job that is there stays as it is, without an error. If the
	// tenant has [postdate.JobsMax] jobs that have not ended, the error is KindLimited; calls that come at the same
	// time may exceed that together.
	CreateJob(ctx context.Context, job Job) error

	// Job returns a job, or KindNotFound.
	Job(ctx context.Context, key postdate.Key) (Job, error)

	// OpenJobs returns the jobs of these buckets that have not ended, in any order.
	OpenJobs(ctx context.Context, buckets []int) ([]Job, error)

	// SetJob puts job in place of the one with its key, if that is one version before and has not ended, and says
	// whether it did. If not, somebody else was quicker, perhaps this very call before its answer was lost: the
	// caller reads the job again.
	SetJob(ctx context.Context, job Job) (bool, error)
}

// Job is a call that changes all messages of a tenant that a filter selects, page by page.
type Job struct {
	Key       postdate.Key // ScheduleID is the job's id; a message with that id is something else
	Version   uint64       // counts its changes
	Kind      JobKind
	Filter    JobFilter
	CreatedAt postdate.Time
	EndedAt   postdate.Time // 0: it has not ended
	After     *ListPosition // it goes on after this message; nil: it begins
	Done      int64         // messages that it changed
	Failed    int64         // messages that it found and could not change
	LastError string        // about the last one that it could not change, or why it does not go on
}

// JobKind says what a job does with the messages.
type JobKind uint8

// The kinds of jobs.
const (
	JobCancel  JobKind = iota + 1 // of what is PENDING
	JobRedrive                    // of what is DELIVERY_FAILED
	JobPurge                      // likewise
)

var jobKinds = [...]string{JobCancel: "cancel", JobRedrive: "redrive", JobPurge: "purge"}

func (k JobKind) String() string {
	if int(k) >= len(jobKinds) || k == 0 {
		return fmt.Sprintf("JobKind(%d)", uint8(k))
	}
	return jobKinds[k]
}

// Valid says whether there is such a kind.
func (k JobKind) Valid() bool { return k != 0 && int(k) < len(jobKinds) }

// JobFilter selects messages as [ListQuery] does. Zero fields select all.
type JobFilter struct {
	Label     string
	Channel   postdate.Channel
	IDPrefix  string
	From, To  postdate.Time
	LastError string // of what failed: the whole of it
}

// jobPage is how many messages a job changes at a time.
const jobPage = 1_000

// Query asks for the page of messages that the job comes to next. It is for those that [Job.Selected] leaves of it.
func (j *Job) Query() ListQuery {
	status := postdate.Pending
	if j.Kind != JobCancel {
		status = postdate.DeliveryFailed
	}
	return ListQuery{
		Tenant: j.Key.Tenant, Status: status, Label: j.Filter.Label, Channel: j.Filter.Channel,
		IDPrefix: j.Filter.IDPrefix, From: j.Filter.From, To: j.Filter.To, After: j.After, Limit: jobPage,
		StatesOnly: true,
	}
}

// Selected is what of a page's messages the job is for.
func (j *Job) Selected(records []postdate.Record) []postdate.Record {
	if j.Filter.LastError == "" {
		return records
	}
	return slices.DeleteFunc(records, func(r postdate.Record) bool { return r.LastError != j.Filter.LastError })
}

// Next is the job after a page of what is selected, of which errs says what became of each message. What is not done
// yet and can be is tried again: the job goes on before the first such message. Then again is its error.
func (j *Job) Next(page *ListPage, errs []error, now postdate.Time) (next Job, again error) {
	next = *j
	next.Version++
	for i, err := range errs {
		switch {
		case err == nil:
			next.Done++
		case !forGood(err):
			if again == nil {
				again = err
			}
		case again != nil || gone(err): // it may be found again
		default:
			next.Failed++
			next.LastError = jobWords(err)
		}
		if again == nil {
			r := &page.Records[i]
			next.After = &ListPosition{ExecutionTime: r.ExecutionTime, Bucket: r.Bucket, ScheduleID: r.ScheduleID}
		}
	}
	switch {
	case again != nil:
		next.LastError = jobWords(again)
		return next, again
	case page.Next == nil:
		next.EndedAt = now
	}
	next.After = page.Next
	if next.Failed == 0 {
		next.LastError = "" // it said why the job did not go on
	}
	return next, nil
}

// Held is the job when its page could not be read because of err.
func (j *Job) Held(err error) Job {
	held := *j
	held.Version++
	held.LastError = jobWords(err)
	return held
}

// Same says whether next has come as far as the job, and says the same of it.
func (j *Job) Same(next *Job) bool {
	return j.Done == next.Done && j.Failed == next.Failed && j.LastError == next.LastError &&
		(j.After == next.After || j.After != nil && next.After != nil && *j.After == *next.After)
}

// ErrAfterJob says of a message that it failed only after the job began, perhaps because the job redrove it.
func (j *Job) ErrAfterJob(r *postdate.Record) error {
	if r.SettledAt < j.CreatedAt {
		return nil
	}
	return ErrChanged(r.Key)
}

// gone says whether a message is no longer what the job is for.
func gone(err error) bool {
	kind := postdate.KindOf(err)
	return kind == postdate.KindNotFound || kind == postdate.KindConflict
}

// forGood says whether an error tells how a message stands, so that trying again is in vain: also of one that is
// damaged, which must not hold up the others.
func forGood(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	switch postdate.KindOf(err) {
	case postdate.KindNotFound, postdate.KindTooLate, postdate.KindConflict, postdate.KindInvalid,
		postdate.KindExists, postdate.KindTooLarge, postdate.KindInternal:
		return true
	}
	return false
}

// jobWords are the words of an error, as a job keeps them.
func jobWords(err error) string { return postdate.Cut(err.Error(), postdate.LastErrorBytesMax) }

// ErrNoJob says that there is no such job.
func ErrNoJob(key postdate.Key) error {
	return postdate.E(postdate.KindNotFound, "there is no job %q: it was never started, or it ended and its "+
		"retention is over", key.ScheduleID)
}

// ErrTooManyJobs says that the tenant cannot start another job now.
func ErrTooManyJobs() error {
	err := postdate.E(postdate.KindLimited, "%d jobs of the tenant have not ended, and no more are allowed at a time: "+
		"wait until one ends", postdate.JobsMax)
	err.RetryAfter = 10 * time.Second
	return err
}
