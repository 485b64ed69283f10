package main

import (
	"bytes"
	"compress/flate"
	"strings"
	"testing"
	"time"
)

func TestQuantilesAreOfTheNearestRank(t *testing.T) {
	hundred := make([]time.Duration, 100) // 100 to 1, not in order
	for i := range hundred {
		hundred[i] = time.Duration(100 - i)
	}
	for _, c := range []struct {
		values []time.Duration
		q      float64
		want   time.Duration
	}{
		{nil, 0.5, 0},
		{[]time.Duration{7}, 0.5, 7},
		{[]time.Duration{7}, 0.999, 7},
		{[]time.Duration{2, 1}, 0.5, 1},
		{hundred, 0, 1},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 0.999, 100},
		{hundred, 1, 100},
	} {
		if got := quantile(c.values, c.q); got != c.want {
			t.Errorf("of %d values the quantile %v is %d, not %d", len(c.values), c.q, got, c.want)
		}
	}
}

// scheduled returns a recorder of three messages that are acknowledged and were due a minute ago.
func scheduled() *recorder {
	r := newRecorder(10, 3, payloadBytes)
	for i := range r.due {
		r.message(i, time.Now().Add(-time.Minute))
		r.acked[i].Store(true)
	}
	return r
}

func TestARunFailsIfItsDeliveriesAreWrong(t *testing.T) {
	for _, c := range []struct {
		name    string
		deliver []string
		change  func(*recorder)
		want    string // "": no error
	}{
		{"all arrive", ids(10, 11, 12), nil, ""},
		{"one comes twice", ids(10, 11, 11, 12), nil, ""},
		{"one is lost", ids(10, 12), nil, "1 messages were acknowledged and did not arrive"},
		{"one that was not acknowledged is missing", ids(10, 12),
			func(r *recorder) { r.acked[1].Store(false) }, ""},
		{"one is early", ids(10, 11, 12),
			func(r *recorder) { r.due[2] = time.Now().Add(time.Hour) }, "1 of 3 messages came early"},
		{"an id below", ids(9, 10, 11, 12), nil, "1 deliveries were of no message of this run"},
		{"an id above", ids(10, 11, 12, 13), nil, "1 deliveries were of no message of this run"},
		{"a cut payload", append(ids(10, 11, 12), "00000000000000000010"), nil,
			"1 deliveries were of no message of this run"},
		{"nothing arrives", nil, nil, "nothing arrived"},
	} {
		r := scheduled()
		if c.change != nil {
			c.change(r)
		}
		for _, p := range c.deliver {
			r.deliver([]byte(p))
		}
		err := r.sum().check()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: the error is %v, not %q", c.name, err, c.want)
		}
	}
}

func ids(of ...uint64) (payloads []string) {
	for _, id := range of {
		payloads = append(payloads, string(payload(id, payloadBytes)))
	}
	return payloads
}

func TestFiguresOfDeliveries(t *testing.T) {
	r := scheduled()
	due := r.due[0]
	for i, lag := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second} {
		r.due[i] = due
		r.count[i].Store(int32(1 + i)) // the second twice, the third three times
		r.first[i].Store(due.Add(lag).UnixNano())
	}
	d := r.sum()
	if d.arrived != 3 || d.duplicates != 3 || d.longestGap != 3*time.Second || !d.last.Equal(due.Add(5*time.Second)) {
		t.Errorf("the deliveries are %+v", d)
	}
	for name, want := range map[string]float64{lagP50: 2000, lagP99: 5000, lagMax: 5000, duplicates: 3} {
		if got := d.figures()[name]; got != want {
			t.Errorf("%s is %v, not %v", name, got, want)
		}
	}
}

// A peer that compresses its blocks must not gain by payloads that have parts in common. Text of 64
// letters alone can be compressed by a quarter.
func TestPayloadsHaveNothingInCommon(t *testing.T) {
	var small bytes.Buffer
	w, err := flate.NewWriter(&small, flate.DefaultCompression)
	if err != nil {
		t.Fatal(err)
	}
	const n, stride = 120, 64 // a block of 32 KiB, of one of 64 buckets
	for id := range uint64(n) {
		if _, err := w.Write(payload(id*stride, payloadBytes)[20:]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if share := float64(small.Len()) / (n * (payloadBytes - 20)); share < 0.73 {
		t.Errorf("payloads can be compressed to %.0f %%: they repeat each other", 100*share)
	}
}
