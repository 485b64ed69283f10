package api

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/recurrence"
	"github.com/postdate/postdate/store"
)

// recurrenceOf reads the recurrence of a message that has one.
func recurrenceOf(b *messageBody) (*postdate.Recurrence, *Problem) {
	for _, field := range []struct {
		name    string
		given   bool
		instead string
	}{
		{"executionTime", b.ExecutionTime != nil, "say in recurrence when it begins, with start or anchor"},
		{"delay", b.Delay != nil, "say in recurrence when it begins, with start or anchor"},
		{"expiresAt", b.ExpiresAt != nil,
			"say in recurrence when it ends, with end, and with misfire what becomes of late occurrences"},
	} {
		if field.given {
			return nil, fieldProblem("/"+field.name, invalid("%s and recurrence exclude each other: %s", field.name,
				field.instead))
		}
	}
	given, p := b.Recurrence.read()
	if p != nil {
		return nil, p
	}
	if _, err := recurrence.Parse(given, 0); err != nil {
		return nil, recurrenceProblem(err)
	}
	return &given, nil
}

// recurrenceProblem is fieldProblem for an error of package recurrence: that begins with the field at fault, if it is
// one alone, and is there.
func recurrenceProblem(err error) *Problem {
	pointer := "/recurrence"
	if name, rest, _ := strings.Cut(err.Error(), " "); slices.Contains(recurrenceFields, name) &&
		!strings.HasPrefix(rest, "and ") && !strings.HasPrefix(rest, "needs ") {
		pointer += "/" + name
	}
	return fieldProblem(pointer, err)
}

// shownTime is the execution time that answers show: of a series, the first occurrence.
func shownTime(m *postdate.Message) postdate.Time {
	if m.Recurrence != nil {
		return m.First
	}
	return m.ExecutionTime
}

// insertedSeries is what the answer to an insert shows of a series: its first occurrence, and whether it is ending.
// The result has the time with its jitter, and of a series that was there before, only the store knows more.
func (s *Server) insertedSeries(ctx context.Context, m *postdate.Message,
	result store.Inserted) (first postdate.Time, ending bool) {
	if result.Created {
		return m.First, false
	}
	r, err := s.config.Messages.Get(ctx, m.Key)
	if err != nil {
		return result.ExecutionTime, false
	}
	answer, _ := firstAnswer(&r, m.Digest)
	return answer.executionTime, answer.ending
}

// isEnding says whether a series was cancelled while an occurrence is on its way, with which it ends.
func isEnding(r *postdate.Record) bool { return r.Status == postdate.Pending && r.Ending }

// lookUpRetried brings a series' history up to date: it looks up the occurrences that are messages of their own.
func (s *Server) lookUpRetried(ctx context.Context, r *postdate.Record) error {
	history := slices.Clone(r.Series.History)
	for i := range history {
		o := &history[i]
		if o.Status != postdate.Pending {
			continue
		}
		alone := r.Alone(o.Occurrence)
		there, err := s.config.Messages.Get(ctx, alone.Key)
		switch {
		case err != nil && postdate.KindOf(err) == postdate.KindNotFound:
			o.Status = statusExpired
		case err != nil:
			return err
		case r.Owns(there.Version):
			o.Status, o.Attempts = there.Status, there.Attempts
			if there.Status.Final() {
				o.At = there.SettledAt
			}
		}
	}
	r.Series.History = history
	return nil
}

// appendRecurrence appends the member that shows a rule, with the fields that are not the default.
func appendRecurrence(b []byte, r *postdate.Recurrence) []byte {
	b = append(b, `,"recurrence":{`...)
	start := len(b)
	for _, field := range []struct {
		name string
		d    time.Duration
	}{{"every", r.Every}, {"jitter", r.Jitter}, {"misfireAfter", r.MisfireAfter}} {
		if field.d != 0 {
			b = appendMember(b, field.name, isoDuration(field.d))
		}
	}
	for _, field := range []struct {
		name string
		at   postdate.Time
	}{{"anchor", r.Anchor}, {"start", r.Start}, {"end", r.End}} {
		if field.at != 0 {
			b = appendTime(b, field.name, field.at)
		}
	}
	misfire := ""
	if r.Misfire != 0 {
		misfire = r.Misfire.String()
	}
	for _, field := range []struct{ name, text string }{
		{"cron", r.Cron}, {"timezone", r.Timezone}, {"misfire", misfire}, {"gap", r.Gap.String()},
		{"overlap", r.Overlap.String()},
	} {
		if field.text != "" {
			b = appendMember(b, field.name, field.text)
		}
	}
	if r.MaxRuns != 0 {
		b = append(b, `,"maxRuns":`...)
		b = strconv.AppendInt(b, int64(r.MaxRuns), 10)
	}
	b = append(b[:start], b[start+1:]...) // the first comma
	return append(b, '}')
}

// appendSeries appends the member that says how a series stands.
func appendSeries(b []byte, r *postdate.Record) []byte {
	b = append(b, `,"series":{"paused":`...)
	b = strconv.AppendBool(b, r.Paused && r.Status == postdate.Pending)
	history := r.Series.History
	if last := r.Series.Last(); last != 0 {
		b = appendTime(b, "last", last)
	}
	switch {
	case r.Status != postdate.Pending || r.Paused && !r.Ending:
	case r.Ending:
		b = append(b, `,"ending":true`...)
	default:
		b = appendTime(b, "next", r.Occurrence)
	}
	for _, count := range []struct {
		name string
		n    int64
	}{{"fired", r.Series.Fired}, {"failed", r.Series.Failed}, {"skipped", r.Series.Skipped}} {
		b = append(b, `,"`+count.name+`":`...)
		b = strconv.AppendInt(b, count.n, 10)
	}
	b = append(b, `,"history":[`...)
	for i := range history {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendOutcome(b, &history[i])
	}
	return append(b, `]}`...)
}

// statusExpired stands for the status of an occurrence whose own message has expired: nobody knows how
// it ended.
const statusExpired = postdate.Cancelled + 1

func appendOutcome(b []byte, o *postdate.Outcome) []byte {
	status := "SKIPPED"
	switch o.Status {
	case 0:
	case statusExpired:
		status = "EXPIRED"
	default:
		status = o.Status.String()
	}
	b = append(b, `{"executionTime":`...)
	b = appendText(b, o.Occurrence.String())
	b = appendMember(b, "status", status)
	b = appendTime(b, "at", o.At)
	if o.Attempts != 0 {
		b = append(b, `,"attempts":`...)
		b = strconv.AppendInt(b, int64(o.Attempts), 10)
	}
	if o.Skipped != 0 {
		b = append(b, `,"skipped":`...)
		b = strconv.AppendInt(b, o.Skipped, 10)
	}
	return append(b, '}')
}

// isoDuration writes a duration of whole milliseconds in ISO 8601, in hours, minutes and seconds.
func isoDuration(d time.Duration) string {
	b := []byte("PT")
	for _, part := range []struct {
		n    time.Duration
		unit byte
	}{{d / time.Hour, 'H'}, {d % time.Hour / time.Minute, 'M'}} {
		if part.n > 0 {
			b = append(strconv.AppendInt(b, int64(part.n), 10), part.unit)
		}
	}
	if rest := d % time.Minute; rest > 0 || d == 0 {
		b = append(strconv.AppendFloat(b, rest.Seconds(), 'f', -1, 64), 'S')
	}
	return string(b)
}
