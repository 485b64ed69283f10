package main

import (
	"slices"
	"strings"
)

// hotPath is some benchmarks of one package that run as often.
type hotPath struct {
	folder string
	names  string // without Benchmark, with | between
	within string // a pattern for each level of their sub-benchmarks, with / before it
	times  string // as -benchtime takes it: a number, so that both sides do the same work
	// server says that they start a server, which takes seconds. They run every other round: more
	// often in one process would be no more than one sample, since they share that server's luck.
	// Where the server cannot be had, that is said, and they are left out.
	server bool
}

// hotPaths is what a message costs on its way, and what users call most.
var hotPaths = []hotPath{
	{folder: "store/pebble", names: "Insert|InsertCoalesced|Cancel", times: "10000x"},
	{folder: "store/pebble", names: "InsertBatch|CancelBatch", times: "40x"},
	{folder: "store/pebble", names: "Cycle", times: "30x"},
	{folder: "store/pebble", names: "ClaimNothing|ClaimFew", times: "200x"},
	{folder: "store/pebble", names: "Get", times: "20000x"},
	{folder: "poller", names: "Step", within: "/^buckets=(64|1024)$/^parked=(1|1000)$", times: "10000x"},
	{folder: "poller", names: "Sweep", within: "/^buckets=(64|1024)$", times: "100000x"},
	{folder: "poller", names: "Tick", within: "/^apart=60$/^full=4000$", times: "100000x"},
	{folder: "api", names: "PostOne|GetOne", times: "20000x"},
	{folder: "api", names: "PostBatchOf500|InboxPageOf1000", times: "100x"},
	{folder: "auth", names: "Authenticate", times: "300000x"},
	{folder: "client", names: "Requests", within: "/^callers=(16|256)$/^requests=2$", times: "3000x"},
	{folder: "publisher/rabbitmq", names: "Publish", within: "/^publisher$/^callers=4$", times: "10000x", server: true},
	{folder: "store/mongo", names: "Insert|Batch|Drain", within: "/^store$", times: "5000x", server: true},
}

// pattern is what -bench takes.
func (h hotPath) pattern() string { return "^Benchmark(" + h.names + ")$" + h.within }

// has says whether f is of one of these benchmarks.
func (h hotPath) has(f figure) bool {
	name := f.name[:strings.IndexAny(f.name+"-", "/-")]
	return f.folder == h.folder && slices.Contains(strings.Split(h.names, "|"), name)
}
