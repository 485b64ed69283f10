package main

import (
	"strings"
	"testing"
)

func TestTheTableHasMediansAndSaysWhatFailed(t *testing.T) {
	one := func(peer, synced string, rate float64) result {
		return result{Peer: peer, Workload: "cancel", Load: "5 messages", Synced: synced, Settings: peer + " 1.0; a | b",
			Figures: figures{cancelsPerS: rate, callP50: 1.5, callP99: 20.25, serverCPU: 0}}
	}
	failed := one("two", "within 2 minutes", 0)
	failed.Err = "1 messages were acknowledged\nand did not arrive"
	unable := one("three", "once a second", 0)
	unable.Err, unable.cannot = "it has no such call", true
	r := report{machine: "small", leftOut: []string{"four: not installed"}, results: []result{
		one("one", beforeAnswer, 900), one("two", "within 2 minutes", 5), unable,
		one("one", beforeAnswer, 1100), failed, unable,
		one("one", beforeAnswer, 1000), one("two", "within 2 minutes", 5), unable,
	}}
	want := `Machine: small. Payload: 256 bytes. Each figure is the median of its runs.

Left out: four: not installed

| peer | settings | synced |
| --- | --- | --- |
| one | one 1.0; a \| b | before each acknowledgement |
| two | two 1.0; a \| b | within 2 minutes |
| three | three 1.0; a \| b | once a second |

## cancel

5 messages.

| peer | synced | cancels_per_s | call_ms_p50 | call_ms_p99 | server_cpu_s | spread |
| --- | --- | --- | --- | --- | --- | --- |
| one | before each acknowledgement | 1000 | 1.50 | 20.2 | 0 | 20 % |
| two | within 2 minutes | failed: 1 messages were acknowledged and did not arrive |  |  |  |  |
| three | once a second | it has no such call |  |  |  |  |
`
	var b strings.Builder
	if err := r.writeTable(&b); err != nil {
		t.Fatal(err)
	}
	if b.String() != want {
		t.Errorf("the table is\n%s\nnot\n%s", b.String(), want)
	}
	if err := r.failures(); err == nil || err.Error() != "1 of 9 runs failed" {
		t.Errorf("the error of all runs is %v", err)
	}
}

func TestMedianOfAnEvenNumber(t *testing.T) {
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("it is %v, not 2.5", got)
	}
}
