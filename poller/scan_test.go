package poller

import (
	"testing"
	"time"

	"github.com/postdate/postdate/fence"
)

// sleep lets time pass in a node that nothing wakes but what the machine asked for.
func (s *shop) sleep(d time.Duration) {
	for end := s.now.Mono + d; s.now.Mono < end; {
		s.now = s.now.Later(min(s.m.Wake(s.now), end-s.now.Mono))
		s.step(fence.Tick{})
	}
}

var _ = testing.Short
