package pebble

import "time"

// restTime is how long a rest lasts. A shorter one lasts as long, as Go waits for the network in whole milliseconds.
const restTime = time.Millisecond

// rests are those of a reader of much: it is in no hurry, and the requests of others are. runtime.Gosched would not do:
// Go resumes the reader before it asks the network for requests.
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
