package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

func TestNodesThatAreNotReadyAreStopped(t *testing.T) {
	root := t.TempDir()
	silent := filepath.Join(root, "silent")
	if err := os.WriteFile(silent, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(context.Background())
	interrupt()
	n, err := startNodes(ctx, nodesWish{binary: silent, root: root, count: 1, buckets: 1, inboxes: 1})
	if err == nil {
		t.Fatal("it says that a silent node is ready")
	}
	if len(n.servers) != 1 || n.servers[0].process != nil {
		t.Errorf("the nodes are %+v: one that was started still runs", n.servers)
	}
}
