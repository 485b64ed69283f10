package api

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
)

// An answer groups at most so many pages of so many messages that failed.
const (
	failurePages = 10
	failurePage  = 1_000
)

// getFailures groups messages that failed by their channels and errors.
func (s *Server) getFailures(ctx *fasthttp.RequestCtx) *Problem {
	args, p := query(ctx, "channel", "from", "to")
	if p != nil {
		return p
	}
	q, p := listQuery(args, s.tenantOf(ctx), s.config.Buckets)
	if p != nil {
		return p
	}
	// A list by its channel would look at 10,000 messages for each page.
	only := q.Channel
	q.Channel, q.Status, q.StatesOnly, q.Limit = "", postdate.DeliveryFailed, true, failurePage
	storeCtx := s.calls.begin()
	groups := failureGroups{}
	for range failurePages {
		page, err := s.config.Messages.List(storeCtx, q)
		if err != nil {
			return s.failed(ctx, "look at what failed", err, "")
		}
		for i := range page.Records {
			if r := &page.Records[i]; only == "" || r.Channel == only {
				groups.add(r)
			}
		}
		if q.After = page.Next; q.After == nil {
			break
		}
	}
	return finish(ctx, fasthttp.StatusOK, appendFailures(begin(ctx), groups.largest(), q.After == nil))
}

// failureGroup are messages that failed on a channel with the same error.
type failureGroup struct {
	channel     postdate.Channel
	lastError   string
	count       int
	first, last postdate.Time // when the first and the last of them failed
	example     string        // the one that failed last
}

// failureGroups are groups by channels and errors.
type failureGroups map[failureKey]*failureGroup

type failureKey struct {
	channel   postdate.Channel
	lastError string
}

func (f failureGroups) add(r *postdate.Record) {
	key := failureKey{r.Channel, r.LastError}
	g := f[key]
	if g == nil {
		g = &failureGroup{channel: r.Channel, lastError: r.LastError, first: r.SettledAt}
		f[key] = g
	}
	g.count++
	g.first = min(g.first, r.SettledAt)
	if r.SettledAt >= g.last {
		g.last, g.example = r.SettledAt, r.ScheduleID
	}
}

// largest are all groups, the largest first.
func (f failureGroups) largest() []*failureGroup {
	return slices.SortedFunc(maps.Values(f), func(a, b *failureGroup) int {
		return cmp.Or(b.count-a.count, cmp.Compare(b.last, a.last),
			strings.Compare(string(a.channel), string(b.channel)), strings.Compare(a.lastError, b.lastError))
	})
}

// appendFailures appends as many groups as an answer may have. all: nothing that failed was left out of them.
func appendFailures(b []byte, groups []*failureGroup, all bool) []byte {
	shown := groups[:min(len(groups), postdate.FailureGroupsMax)]
	b = append(b, `{"groups":[`...)
	for i, g := range shown {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"channel":`...)
		b = appendText(b, g.channel)
		b = appendMember(b, "lastError", g.lastError)
		b = strconv.AppendInt(append(b, `,"count":`...), int64(g.count), 10)
		b = strconv.AppendBool(append(b, `,"exact":`...), all)
		b = appendTime(b, "firstFailedAt", g.first)
		b = appendTime(b, "lastFailedAt", g.last)
		b = append(appendMember(b, "example", g.example), '}')
	}
	b = strconv.AppendBool(append(b, `],"exact":`...), all && len(shown) == len(groups))
	return append(b, '}')
}
