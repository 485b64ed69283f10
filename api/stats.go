package api

import (
	"math"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/internal/stats"
)

// getStats shows the figures of all tenants to those who see all metrics, unless they act for one, and to others
// those of their own.
func (s *Server) getStats(ctx *fasthttp.RequestCtx) *Problem {
	if p := noQuery(ctx); p != nil {
		return p
	}
	tenant := ""
	if !seesAll(ctx) || len(ctx.Request.Header.Peek(tenantHeader)) > 0 {
		tenant = s.tenantOf(ctx)
	}
	figures := s.config.Stats(s.calls.begin(), tenant)
	if i := identityOf(ctx); i != nil && !i.Allows(auth.Admin) {
		figures.Sum.Down = nil // why a channel is down is its tenant's own
	}
	return finish(ctx, fasthttp.StatusOK, appendStats(begin(ctx), &figures))
}

func appendStats(b []byte, s *stats.Stats) []byte {
	b = append(b, `{"at":"`...)
	b = append(s.At.AppendText(b), '"')
	if s.Tenant != "" {
		b = appendMember(b, "tenant", s.Tenant)
	}
	b = appendTextList(b, "nodes", s.Nodes)
	b = appendTextList(b, "missing", s.Missing)
	b = strconv.AppendBool(append(b, `,"ownSeries":`...), s.Sum.OwnSeries)
	if s.Tenant == "" { // these are not known by tenant
		b = appendNumber(b, "overdueMs", s.Sum.Overdue.Milliseconds())
		b = appendNumber(b, "inHand", int64(s.Sum.InHand))
		b = appendNumber(b, "channelsDown", int64(s.Sum.ChannelsDown))
		b = appendDown(b, s.Sum.Down)
	}
	if s.Pending != nil {
		b = append(b, `,"pending":{"messages":`...)
		b = strconv.AppendInt(b, s.Pending.Messages, 10)
		b = append(appendNumber(b, "bytes", s.Pending.Bytes), '}')
	}
	b = append(b, `,"total":{`...)
	b = append(appendFigures(b, &s.Sum.Total), `},"lastMinute":`...)
	b = append(appendSlot(b, &s.LastMinute), `,"perSecond":{`...)
	b = append(appendRates(b, &s.LastMinute), `},"slots":[`...)
	for i := range s.Sum.Slots {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendSlot(b, &s.Sum.Slots[i])
	}
	return append(b, `]}`...)
}

// appendDown appends the channels that are down, if there are any.
func appendDown(b []byte, down []stats.DownChannel) []byte {
	if len(down) == 0 {
		return b
	}
	b = append(b, `,"down":[`...)
	for i, d := range down {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(append(b, `{"tenant":`...), d.Tenant)
		b = appendMember(b, "channel", string(d.Channel))
		b = append(appendMember(b, "reason", d.Reason), '}')
	}
	return append(b, ']')
}

func appendSlot(b []byte, s *stats.Slot) []byte {
	b = append(b, `{"from":"`...)
	b = append(s.From.AppendText(b), `","seconds":`...)
	b = append(appendRounded(b, s.Lasted.Seconds()), ',')
	b = appendFigures(b, &s.Figures)
	p50, some := s.Figures.Lateness.Quantile(.5)
	if some {
		p99, _ := s.Figures.Lateness.Quantile(.99)
		b = appendRounded(append(b, `,"latenessMs":{"p50":`...), 1000*p50)
		b = append(appendRounded(append(b, `,"p99":`...), 1000*p99), '}')
	}
	return append(b, '}')
}

func appendFigures(b []byte, f *stats.Figures) []byte {
	b = strconv.AppendUint(append(b, `"scheduled":`...), f.Scheduled, 10)
	b = strconv.AppendUint(append(b, `,"delivered":`...), f.Delivered, 10)
	b = strconv.AppendUint(append(b, `,"failed":`...), f.Failed, 10)
	return strconv.AppendUint(append(b, `,"cancelled":`...), f.Cancelled, 10)
}

// appendRates appends how many there were in a second.
func appendRates(b []byte, s *stats.Slot) []byte {
	seconds := max(s.Lasted, time.Millisecond).Seconds()
	per := func(n uint64) float64 { return float64(n) / seconds }
	b = appendRounded(append(b, `"scheduled":`...), per(s.Figures.Scheduled))
	b = appendRounded(append(b, `,"delivered":`...), per(s.Figures.Delivered))
	b = appendRounded(append(b, `,"failed":`...), per(s.Figures.Failed))
	return appendRounded(append(b, `,"cancelled":`...), per(s.Figures.Cancelled))
}

// appendRounded appends a number with at most three decimals.
func appendRounded(b []byte, x float64) []byte {
	return strconv.AppendFloat(b, math.Round(x*1000)/1000, 'f', -1, 64)
}
