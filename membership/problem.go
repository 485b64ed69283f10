package membership

import (
	"context"
	"io"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/postdate/postdate"
)

// The possible reasons why nodes do not find each other.
const (
	problemKey     = "key"
	problemCluster = "cluster"
	problemName    = "name"
	problemAlone   = "alone"
)

// sayAgainAfter is the time between two log lines about a lasting problem.
const sayAgainAfter = 10 * time.Minute

// problem is a sentence for the person who has to act on it.
type problem struct {
	err        *postdate.Error
	seen, said time.Time
}

// Problem returns the latest reason why this node may not find the others, as a sentence
// that says what to do. It returns nil if there was none recently.
func (m *Membership) Problem() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var last problem
	for reason, p := range m.problems {
		if time.Since(p.seen) < 3*m.config.RejoinEvery+time.Second && p.seen.After(last.seen) &&
			reason != problemAlone {
			last = p
		}
	}
	if last.err == nil {
		last = m.problems[problemAlone] // any of the others may be its cause
	}
	if last.err == nil {
		return nil
	}
	return last.err
}

// report records a problem, and logs it if it is new.
func (m *Membership) report(reason string, err *postdate.Error) {
	if reason != problemAlone {
		m.metrics.refused.WithLabelValues(reason).Inc()
	}
	now := time.Now()
	m.mu.Lock()
	p := m.problems[reason]
	say := now.Sub(p.said) > sayAgainAfter
	p.err, p.seen = err, now
	if say {
		p.said = now
	}
	m.problems[reason] = p
	m.mu.Unlock()
	if say {
		m.log.Warn("gossip: " + err.Error())
	}
}

// from matches the other side's address in a line of the library's log.
var from = regexp.MustCompile(`from=(\S+)`)

// explain derives the problem from a line of the library's log or the error of a join:
// the library reports it in no other way. TestWrongKeyNeverMerges and
// TestForeignClusterNeverMerges notice if the library's words change.
func explain(text, address string) (reason string, err *postdate.Error) {
	if at := from.FindStringSubmatch(text); at != nil {
		if host, _, err := net.SplitHostPort(at[1]); err == nil {
			address = host // the port is an ephemeral one
		}
	}
	lower := strings.ToLower(text)
	switch {
	case strings.Contains(lower, "unacceptable label"):
		return problemCluster, postdate.E(postdate.KindConflict, "A node at %s belongs to another cluster and is not "+
			"heard: --join must name nodes that share this node's --store.", address)
	case strings.Contains(lower, "decrypt"), strings.Contains(lower, "encryption is"):
		return problemKey, postdate.E(postdate.KindConflict, "A node at %s encrypts with a --gossip-key that this one "+
			"does not have, or only one of them has any: give all nodes of a cluster the same.", address)
	}
	return "", nil
}

// logged writes the library's log to the node's, at level debug, and reports the problems
// in it that an operator has to know.
type logged struct{ *Membership }

var _ io.Writer = logged{}

func (l logged) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("gossip: " + text)
	}
	if strings.Contains(text, "[ERR]") {
		if reason, err := explain(text, "an unknown address"); err != nil {
			l.report(reason, err)
		}
	}
	return len(line), nil
}
