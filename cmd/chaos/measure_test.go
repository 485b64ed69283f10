//go:build linux

package main

import "testing"

func TestReadsTimings(t *testing.T) {
	all, errors := map[string]spent{}, map[string]float64{}
	timings(`# TYPE postdate_store_seconds histogram
postdate_store_seconds_bucket{operation="claim",le="0.1"} 7
postdate_store_seconds_sum{operation="claim"} 1.5
postdate_store_seconds_count{operation="claim"} 3
postdate_lateness_seconds_sum{channel="inbox"} 0.25
postdate_lateness_seconds_count{channel="inbox"} 5
postdate_store_errors_total{kind="fenced",operation="claim"} 2
`, all, errors)
	if len(all) != 2 || all["store claim"] != (spent{3, 1.5}) || all["lateness inbox"] != (spent{5, 0.25}) || len(errors) != 1 || errors["claim: fenced"] != 2 {
		t.Errorf("%v, %v", all, errors)
	}
}
