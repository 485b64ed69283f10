package node

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/store"
)

// jobs works on calls with a filter. What a page makes of a job is decided by [store.Job.Next].
type jobs struct {
	store    store.Jobs
	messages store.Messages // held to the limits of tenants
	now      func() postdate.Time
	passed   func() postdate.Time // as [api.Config] has it
	// scheduled tells the owner of a bucket when a message is due.
	scheduled func(bucket int, at postdate.Time)
	// cancelled counts messages that were cancelled.
	cancelled func(tenant string, n int)
	log       *slog.Logger
	timeout   time.Duration // of a page; 0: pageTimeout
}

// turn works on one page of each job of these buckets. It says whether one came further and has not ended.
func (r *jobs) turn(ctx context.Context, buckets []int) (more bool) {
	open, err := r.store.OpenJobs(ctx, buckets)
	if err != nil {
		r.log.Warn("looking for jobs failed and is repeated", "error", err)
		return false
	}
	for i := range open {
		if ctx.Err() != nil {
			return false
		}
		more = r.page(ctx, &open[i]) || more
	}
	return more
}

// pageTimeout bounds the work on a page, so that a slow one holds up no other job for ever.
const pageTimeout = 30 * time.Second

// page works on one page of a job. If the node ends before it notes how far the job has come, the page is done
// again: no message is changed that the first time made into another one.
func (r *jobs) page(ctx context.Context, j *store.Job) (more bool) {
	pageCtx, cancel := context.WithTimeout(ctx, cmp.Or(r.timeout, pageTimeout))
	defer cancel()
	page, err := r.messages.List(pageCtx, j.Query())
	var next store.Job
	again := err
	if err != nil {
		next = j.Held(err)
	} else {
		page.Records = j.Selected(page.Records)
		next, again = j.Next(&page, r.change(pageCtx, j, page.Records), r.now())
	}
	if again != nil && postdate.KindOf(again) != postdate.KindLimited {
		r.log.Warn("a page of a job failed and is repeated", "job", j.Key.ScheduleID, "error", again)
	}
	if again != nil && next.Same(j) {
		return false
	}
	noteCtx, cancelNote := context.WithTimeout(ctx, cmp.Or(r.timeout, pageTimeout))
	defer cancelNote()
	done, err := r.store.SetJob(noteCtx, next)
	if err != nil {
		r.log.Warn("how far a job has come could not be noted: its page is repeated", "job", j.Key.ScheduleID,
			"error", err)
	}
	if done && next.EndedAt != 0 {
		r.log.Info("a job ended", "tenant", j.Key.Tenant, "job", j.Key.ScheduleID, "kind", j.Kind.String(),
			"done", next.Done, "failed", next.Failed)
	}
	return done && again == nil && next.EndedAt == 0
}

// change does with the messages what the job is for. There is one error for each.
func (r *jobs) change(ctx context.Context, j *store.Job, records []postdate.Record) []error {
	if j.Kind == store.JobCancel && len(records) > 0 {
		errs := api.CancelListed(ctx, r.messages, records, r.now())
		r.cancelled(j.Key.Tenant, succeeded(errs))
		return errs
	}
	errs, before, places := failedBefore(j, records)
	var results []error
	switch {
	case len(before) == 0:
	case j.Kind == store.JobRedrive:
		results = r.redrive(ctx, before)
	case j.Kind == store.JobPurge:
		results = r.messages.Purge(ctx, failed(before))
	}
	for i, err := range results {
		errs[places[i]] = err
	}
	return errs
}

// failedBefore is what of records failed before the job began, and where in records that is; the others have an error.
// Else a job would send again and again what fails while it runs, or delete what nobody has seen.
func failedBefore(j *store.Job, records []postdate.Record) (errs []error, before []postdate.Record, places []int) {
	errs = make([]error, len(records))
	for i := range records {
		if errs[i] = j.ErrAfterJob(&records[i]); errs[i] == nil {
			before, places = append(before, records[i]), append(places, i)
		}
	}
	return errs, before, places
}

// succeeded is how many of these are nil.
func succeeded(errs []error) (n int) {
	for _, err := range errs {
		if err == nil {
			n++
		}
	}
	return n
}

// redrive redrives messages, and tells the owners of their buckets.
func (r *jobs) redrive(ctx context.Context, records []postdate.Record) []error {
	errs := make([]error, len(records))
	at, told := r.passed(), map[int]bool{}
	for i, result := range r.messages.Redrive(ctx, failed(records), at) {
		errs[i] = result.Err
		if b := records[i].Bucket; result.Err == nil && !told[b] {
			told[b] = true
			r.scheduled(b, at)
		}
	}
	return errs
}

// failed names messages at the versions that were read, so that none is changed that has become another since.
func failed(records []postdate.Record) []store.Versioned {
	some := make([]store.Versioned, len(records))
	for i := range records {
		some[i] = store.Versioned{Key: records[i].Key, Version: records[i].Version}
	}
	return some
}
