package pebble

import "time"

const (
	// workMax is for how long a reader of much works before it rests: a request takes about as long.
	workMax = 500 * time.Microsecond
	// restTime is for how long it rests.
	restTime = time.Millisecond
)

// rests are those of a reader of much: it is in no hurry, and the requests of others are. runtime.Gosched would not do:
// Go resumes the reader before it asks the network for requests.
type rests struct {
	since time.Time // when the present work began
}

// due is called again and again: it sleeps if it is time to rest.
func (r *rests) due() {
	switch {
	case r.since.IsZero():
		r.since = time.Now()
	case time.Since(r.since) > workMax:
		time.Sleep(restTime)
		r.since = time.Now()
	}
}
