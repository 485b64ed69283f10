package postdate

import "strings"

// HistoryMax is how many outcomes a series keeps.
const HistoryMax = 20

// Series is what became of a recurring message's occurrences. Each of them is fired or skipped.
type Series struct {
	Fired   int64     // those whose delivery was begun, or given up, and those that were triggered
	Failed  int64     // of these, those that failed, whatever a redrive made of them later
	Skipped int64     // those that were never begun: by the misfire policy, a pause, a change of the rule or a cancel
	History []Outcome // the latest HistoryMax, the oldest first; it is never changed in place
}

// Outcome is what became of an occurrence, or of several that were skipped together.
type Outcome struct {
	Occurrence Time
	Status     Status // Pending: it is a message of its own, retried or triggered; 0: skipped
	At         Time   // when that was so
	Attempts   int
	Skipped    int64 // how many were skipped, from this one on
}

// Add returns s with one more outcome.
func (s Series) Add(o Outcome) Series {
	s.Skipped += o.Skipped
	if o.Skipped == 0 {
		s.Fired++
	}
	if o.Status == DeliveryFailed {
		s.Failed++
	}
	latest := s.History[max(len(s.History)-HistoryMax+1, 0):]
	s.History = append(append(make([]Outcome, 0, len(latest)+1), latest...), o)
	return s
}

// Triggered returns s after an extra occurrence became a message of its own, which is due at that time.
func (s Series) Triggered(occurrence Time) Series {
	return s.Add(Outcome{Occurrence: occurrence, Status: Pending, At: occurrence})
}

// Same says whether a message is still what other says: at the same version, with the same present occurrence
// and counts, and both are paused or neither.
func (r *Record) Same(other *Record) bool {
	a, b := &r.Series, &other.Series
	return r.Version == other.Version && r.Occurrence == other.Occurrence && r.Paused == other.Paused &&
		a.Fired == b.Fired && a.Failed == b.Failed && a.Skipped == b.Skipped
}

// Last is the latest occurrence in the history; 0: there is none. Of several that were skipped together it is
// the first.
func (s *Series) Last() Time {
	if len(s.History) == 0 {
		return 0
	}
	return s.History[len(s.History)-1].Occurrence
}

// Passed is the time that a series has come to, as its history tells: what was begun or skipped is not later,
// and what follows is. A node's clock may be behind it.
func (s *Series) Passed() (t Time) {
	for _, o := range s.History {
		t = max(t, o.Occurrence)
		if o.Skipped != 0 {
			t = max(t, o.At)
		}
	}
	return t
}

// occurrenceMark separates a series' id from an occurrence's time. No client's id has it.
const occurrenceMark = "/"

// Alone returns an occurrence of a series as a message of its own. Its id is the series' id, a slash and the
// occurrence's time. This is what is sent, and what is retried.
func (m *Message) Alone(occurrence Time) Message {
	alone := *m
	alone.ScheduleID += occurrenceMark + occurrence.String()
	alone.ExecutionTime, alone.Recurrence, alone.First = occurrence, nil, 0
	return alone
}

// SeriesID returns the id of the series, where k names one of its occurrences, else the id itself.
func (k Key) SeriesID() string {
	if id, _, _ := strings.Cut(k.ScheduleID, occurrenceMark); !k.OfFailure() {
		return id
	}
	return k.ScheduleID
}

// ClientID returns the id that a client gave, from which the whole id was made.
func (k Key) ClientID() string {
	id, _, _ := strings.Cut(k.ScheduleID, failureMark)
	id, _, _ = strings.Cut(id, occurrenceMark)
	return id
}

// Occurrence returns the time of the occurrence that k names; 0: it names none.
func (k Key) Occurrence() Time {
	_, text, _ := strings.Cut(k.ScheduleID, occurrenceMark)
	at, _ := ParseTime(text)
	return at
}

// OfSeries returns the key of the series of which k names an occurrence. ok is false if it names none.
func (k Key) OfSeries() (series Key, ok bool) {
	series = k
	series.ScheduleID = k.SeriesID()
	return series, series != k
}
