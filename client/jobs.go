package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// JobFilter selects messages for a job: those that pass all of its fields. A zero field lets every message pass, so
// check what you fill in: an empty Label selects messages with any label and with none.
type JobFilter struct {
	Label     string    `json:"label,omitempty"`
	IDPrefix  string    `json:"idPrefix,omitempty"`
	Channel   string    `json:"channel,omitempty"`
	From      time.Time `json:"from,omitzero"`       // execution time at least this
	To        time.Time `json:"to,omitzero"`         // execution time below this
	LastError string    `json:"lastError,omitempty"` // the whole of it; not for CancelWhere
}

// Job is how far a call with a filter has come.
type Job struct {
	JobID     string    `json:"jobId"`
	Kind      string    `json:"kind"` // cancel, redrive or purge
	Filter    JobFilter `json:"filter"`
	State     string    `json:"state"`  // running or done
	Done      int64     `json:"done"`   // messages that it changed
	Total     int64     `json:"total"`  // Done and Failed together, once it is done
	Failed    int64     `json:"failed"` // messages that it could not change
	CreatedAt time.Time `json:"createdAt"`
	EndedAt   time.Time `json:"endedAt"`   // zero: it is running
	LastError string    `json:"lastError"` // why the last of the failed could not be changed, or why the job waits
}

// Running says whether the job has not ended.
func (j *Job) Running() bool { return j.State != "done" }

// CancelWhere starts a job that cancels the pending messages that a filter selects, which is not empty,
// and returns the job's id. Each that counts as done has the same guarantee as with Cancel.
func (c *Client) CancelWhere(ctx context.Context, filter JobFilter) (jobID string, err error) {
	return c.startJob(ctx, "/v1/messages/cancel", filter)
}

// RedriveWhere starts a job that tries the failed messages again that a filter selects, and returns the job's id.
func (c *Client) RedriveWhere(ctx context.Context, filter JobFilter) (jobID string, err error) {
	return c.startJob(ctx, "/v1/messages/redrive", filter)
}

// PurgeWhere starts a job that deletes the failed messages that a filter selects, and returns the job's id.
func (c *Client) PurgeWhere(ctx context.Context, filter JobFilter) (jobID string, err error) {
	return c.startJob(ctx, "/v1/messages/purge", filter)
}

// startJob is not tried again once it may have been done: each start is a job of its own.
func (c *Client) startJob(ctx context.Context, path string, filter JobFilter) (string, error) {
	body, err := json.Marshal(map[string]any{"filter": filter})
	if err != nil {
		return "", err
	}
	var started struct {
		JobID string `json:"jobId"`
	}
	_, err = c.do(ctx, Call{Method: http.MethodPost, Path: path, Body: body}, &started)
	return started.JobID, err
}

// Job says how far a job has come.
func (c *Client) Job(ctx context.Context, jobID string) (Job, error) {
	return get[Job](ctx, c, "/v1/jobs/"+url.PathEscape(jobID))
}

// The pauses between two looks at a job: at first short, for those that end soon.
const jobPauseMin, jobPauseMax = 50 * time.Millisecond, time.Second

// jobLostMax is how long WaitJob goes on while no server tells of the job.
const jobLostMax = time.Minute

// WaitJob waits until a job is done. It calls progress, if that is not nil, with what it sees at each look. A look
// that fails in a way that may pass, since a node restarts, say, is repeated for a minute. The job goes on whatever
// error WaitJob returns, except NoSuchJob.
func (c *Client) WaitJob(ctx context.Context, jobID string, progress func(Job)) (Job, error) {
	last, seen := Job{}, time.Now()
	for pause := jobPauseMin; ; pause = min(2*pause, jobPauseMax) {
		j, err := c.Job(ctx, jobID)
		switch {
		case err == nil:
			last, seen = j, time.Now()
			if progress != nil {
				progress(j)
			}
			if !j.Running() {
				return j, nil
			}
		case ctx.Err() != nil || !passing(err) || time.Since(seen) > jobLostMax:
			return last, err
		}
		select {
		case <-time.After(max(pause, retryAfter(err))):
		case <-ctx.Done():
			return last, ctx.Err()
		}
	}
}
