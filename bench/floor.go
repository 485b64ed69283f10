package main

import "path/filepath"

var floorProgram = program{name: "floor", folder: ".", source: "./floor", versionArgs: []string{"version"}}

var floorEntries = []entry{
	{"floor", "never", "Postdate's HTTP server over a heap in memory, no store", floorProgram,
		func() peer { return &floorPeer{} }},
	{"floor-log", beforeAnswer,
		"Postdate's HTTP server over a heap in memory, and a log that nothing reads", floorProgram,
		func() peer { return &floorPeer{log: true} }},
}

// floorPeer answers to Postdate's API without being a queue: folder floor.
type floorPeer struct {
	postdatePeer
	log bool
}

func (p *floorPeer) command(address, dir string) (command, error) {
	args := []string{"-http", address}
	if p.log {
		args = append(args, "-log", filepath.Join(dir, "log"))
	}
	return command{args: args, send: readyRequest, want: "200 OK"}, nil
}
