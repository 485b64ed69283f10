package pebble

import "time"

// restTime is how long a rest lasts. On Linux a shorter one lasts as long, as Go waits for the network in whole
// milliseconds.
const restTime = time.Millisecond

// rests are the pauses of one who reads much, so that requests come in between. runtime.Gosched alone would not do: Go
// resumes the reader before it asks the network for requests.
type rests struct {
	since time.Time // when the present work began
}

// after is called again and again, and rests after so much work.
func (r *rests) after(work time.Duration) {
	switch {
	case r.since.IsZero():
		r.since = time.Now()
	case time.Since(r.since) > work:
		time.Sleep(restTime)
		r.since = time.Now()
	}
}
