package pebble

import (
	"encoding/binary"

	"github.com/postdate/postdate"
)

// appendLog writes what came of attempts.
func appendLog(b []byte, log []postdate.Attempt) []byte {
	b = binary.AppendUvarint(b, uint64(len(log)))
	for _, a := range log {
		b = append(appendTimes(b, a.At), byte(a.Outcome))
		b = appendText(appendText(b, a.Node), a.Reason)
	}
	return b
}

func (r *reader) log() (log []postdate.Attempt) {
	for n := r.uvarint(); n > 0 && !r.failed; n-- {
		a := postdate.Attempt{At: r.time(), Outcome: postdate.AttemptOutcome(r.byte())}
		a.Node, a.Reason = r.text(), r.text()
		r.failed = r.failed || a.Outcome > postdate.AttemptUnknown
		log = append(log, a)
	}
	return log
}
