package api

import (
	"context"
	"strconv"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// Jobs keeps calls with a filter.
type Jobs interface {
	CreateJob(ctx context.Context, job store.Job) error
	Job(ctx context.Context, key postdate.Key) (store.Job, error)
}

// filterBody selects messages as the parameters of a list do.
type filterBody struct {
	Label     notNull[string] `json:"label"`
	IDPrefix  notNull[string] `json:"idPrefix"`
	Channel   notNull[string] `json:"channel"`
	From      notNull[string] `json:"from"`
	To        notNull[string] `json:"to"`
	LastError notNull[string] `json:"lastError"`
}

// check turns a body into the filter of a job of that kind.
func (b *filterBody) check(kind store.JobKind) (f store.JobFilter, p *Problem) {
	var err error
	if b.LastError.given {
		f.LastError = b.LastError.value
		if err := checkLastError(f.LastError, kind); err != nil {
			return f, fieldProblem("/filter/lastError", err)
		}
	}
	if b.Label.given {
		f.Label = b.Label.value
		if err := postdate.CheckLabel(f.Label); err != nil {
			return f, fieldProblem("/filter/label", err)
		}
	}
	if b.IDPrefix.given {
		f.IDPrefix = b.IDPrefix.value
		if f.IDPrefix == "" { // the advice of a list, to leave it out, would select everything here
			return f, fieldProblem("/filter/idPrefix", invalid("idPrefix is empty: give what the ids begin with"))
		}
		if err := postdate.CheckIDPrefix(f.IDPrefix); err != nil {
			return f, fieldProblem("/filter/idPrefix", err)
		}
	}
	if b.Channel.given {
		if f.Channel, err = postdate.ParseChannel(b.Channel.value); err != nil {
			return f, fieldProblem("/filter/channel", err)
		}
	}
	if b.From.given {
		if f.From, err = postdate.ParseTime(b.From.value); err != nil {
			return f, fieldProblem("/filter/from", err)
		}
	}
	if b.To.given {
		if f.To, err = postdate.ParseTime(b.To.value); err != nil {
			return f, fieldProblem("/filter/to", err)
		}
	}
	if f == (store.JobFilter{}) {
		return f, fieldProblem("/filter", invalid("the filter is empty and would select everything: name a label, an "+
			"idPrefix, a channel, from or to; if you mean everything, give a from that is long past"))
	}
	if f.From != 0 && f.To != 0 && f.From >= f.To {
		return f, fieldProblem("/filter/to", invalid("to %s must lie after from, which is %s", f.To, f.From))
	}
	return f, nil
}

// checkLastError returns an error unless a job of that kind can select by this error.
func checkLastError(text string, kind store.JobKind) error {
	switch {
	case kind == store.JobCancel:
		return invalid("lastError selects what failed, and a cancel is for what is pending: leave it out, or " +
			"redrive or purge with it")
	case text == "":
		return invalid("lastError is empty: give the whole lastError of the messages, or leave it out")
	case len(text) > postdate.LastErrorBytesMax:
		return invalid("lastError has %s, and that of a message has at most %d: give it as the message has it",
			countOf(len(text), "byte"), postdate.LastErrorBytesMax)
	}
	return nil
}

// startJob makes a job of a call with a filter. It goes on after the answer, whatever becomes of this node.
func (s *Server) startJob(ctx *fasthttp.RequestCtx, kind store.JobKind, body *filterBody) *Problem {
	filter, p := body.check(kind)
	if p != nil {
		return p
	}
	if p := mayRedriveWhere(identityOf(ctx), kind, filter.Channel); p != nil {
		return p
	}
	id := uuid.Must(uuid.NewV7()).String()
	job := store.Job{Key: bucket.KeyOf(s.tenantOf(ctx), id, s.config.Buckets), Kind: kind, Filter: filter,
		CreatedAt: s.config.Now()}
	storeCtx := s.calls.begin()
	if err := s.config.Jobs.CreateJob(storeCtx, job); err != nil {
		p := s.failed(ctx, "start a job", err, "")
		if p.Type == UnknownOutcome || p.Type == Internal {
			p.Detail = "whether the job was started is unknown: repeating the request is safe, since a job that " +
				"finds nothing left to do changes nothing"
		}
		return p
	}
	s.audit.did(ctx, "a job was started", "tenant", job.Key.Tenant, "job", id, "kind", kind.String())
	s.config.JobStarted()
	ctx.Response.Header.Set(fasthttp.HeaderLocation, "/v1/jobs/"+id)
	b := append(append(begin(ctx), `{"jobId":"`...), id...)
	return finish(ctx, fasthttp.StatusAccepted, append(b, '"', '}'))
}

// checkJobID returns an error if no job can have this id.
func checkJobID(id string) error {
	if postdate.CheckScheduleID(id) != nil {
		return invalid("%q is not the id of a job: give the jobId that its start answered", clip(id))
	}
	return nil
}

// getJob says how far a job has come.
func (s *Server) getJob(ctx *fasthttp.RequestCtx) *Problem {
	key, p := s.pathKey(ctx, checkJobID)
	if p != nil {
		return p
	}
	storeCtx := s.calls.begin()
	job, err := s.config.Jobs.Job(storeCtx, key)
	switch {
	case err != nil && postdate.KindOf(err) == postdate.KindNotFound:
		return &Problem{Type: NoSuchJob, Detail: "there is no job with this id; it may never have been started, or " +
			"it ended and its retention is over"}
	case err != nil:
		return s.failed(ctx, "read a job", err, "")
	}
	return finish(ctx, fasthttp.StatusOK, appendJob(begin(ctx), &job))
}

func appendJob(b []byte, j *store.Job) []byte {
	b = append(append(append(b, `{"jobId":"`...), j.Key.ScheduleID...), '"')
	b = appendMember(b, "kind", j.Kind.String())
	b = append(b, `,"filter":{`...)
	from := len(b)
	if j.Filter.Label != "" {
		b = appendMember(b, "label", j.Filter.Label)
	}
	if j.Filter.IDPrefix != "" {
		b = appendMember(b, "idPrefix", j.Filter.IDPrefix)
	}
	if j.Filter.Channel != "" {
		b = appendMember(b, "channel", string(j.Filter.Channel))
	}
	if j.Filter.From != 0 {
		b = appendTime(b, "from", j.Filter.From)
	}
	if j.Filter.To != 0 {
		b = appendTime(b, "to", j.Filter.To)
	}
	if j.Filter.LastError != "" {
		b = appendMember(b, "lastError", j.Filter.LastError)
	}
	if len(b) > from { // without the first comma
		b = append(b[:from], b[from+1:]...)
	}
	state := "running"
	if j.EndedAt != 0 {
		state = "done"
	}
	b = appendMember(append(b, '}'), "state", state)
	b = strconv.AppendInt(append(b, `,"done":`...), j.Done, 10)
	if j.EndedAt != 0 {
		b = strconv.AppendInt(append(b, `,"total":`...), j.Done+j.Failed, 10)
	}
	b = strconv.AppendInt(append(b, `,"failed":`...), j.Failed, 10)
	b = appendTime(b, "createdAt", j.CreatedAt)
	if j.EndedAt != 0 {
		b = appendTime(b, "endedAt", j.EndedAt)
	}
	if j.LastError != "" {
		b = appendMember(b, "lastError", j.LastError)
	}
	return append(b, '}')
}

// noJobs is the default: none can be started.
type noJobs struct{}

func (noJobs) CreateJob(context.Context, store.Job) error {
	return postdate.E(postdate.KindUnavailable, "this node keeps no jobs")
}

func (noJobs) Job(_ context.Context, key postdate.Key) (store.Job, error) {
	return store.Job{}, store.ErrNoJob(key)
}
