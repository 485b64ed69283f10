package node

import (
	"testing"
	"time"
)

// An alarm never rings before its time, however often it is set, and rings immediately for a
// time that has passed.
func TestAlarm(t *testing.T) {
	a := newAlarm()
	defer a.stop()
	for _, d := range []time.Duration{3 * time.Millisecond, 0, 200 * time.Microsecond, -time.Second, time.Nanosecond} {
		begin := time.Now()
		a.set(time.Hour)
		a.set(d)
		select {
		case <-a.rings:
		case <-time.After(time.Minute):
			t.Fatalf("set to %v, it does not ring", d)
		}
		if early := d - time.Since(begin); early > 0 {
			t.Errorf("set to %v, it rings %v early", d, early)
		}
	}
}

// BenchmarkAlarm shows how late an alarm rings, compared with a timer of the runtime.
func BenchmarkAlarm(b *testing.B) {
	const d = 700 * time.Microsecond
	var late time.Duration
	b.Run("alarm", func(b *testing.B) {
		a := newAlarm()
		defer a.stop()
		late = 0
		for b.Loop() {
			begin := time.Now()
			a.set(d)
			<-a.rings
			late += time.Since(begin) - d
		}
		b.ReportMetric(float64(late.Microseconds())/float64(b.N), "µs-late/op")
	})
	b.Run("timer", func(b *testing.B) {
		late = 0
		for b.Loop() {
			begin := time.Now()
			<-time.After(d)
			late += time.Since(begin) - d
		}
		b.ReportMetric(float64(late.Microseconds())/float64(b.N), "µs-late/op")
	})
}
