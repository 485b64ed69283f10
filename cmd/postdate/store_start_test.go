package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
)

// A store that cannot be used makes the start fail with one sentence and exit code 1, and its
// content is there when the cause is removed.
func TestServeRefusesAStore(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	s := startServe(t, nil, "--store", "pebble:"+dir)
	api := nodetest.NewClient(s.ready.HTTP)
	defer api.Close()
	kept, err := api.Schedule(t.Context(), client.Message{ScheduleID: "kept", Channel: "inbox:a", Delay: time.Hour, Payload: []byte("1")})
	if err != nil || !kept.Created {
		t.Fatal(kept, err)
	}
	refused(t, dir, nil, "in use by another process", "stop that one, or name another directory")
	if m, err := api.Get(t.Context(), "kept"); err != nil || m.Status != "PENDING" {
		t.Errorf("the first node was disturbed: %+v, %v", m, err)
	}
	stopServe(t, s)

	refused(t, dir, []string{"--buckets", "8"}, "has 64 buckets", "start it with --buckets 64")
	file := filepath.Join(dir, "LOCK")
	refused(t, file, nil, "is a file, or lies below one", "name an empty or a new directory")
	refused(t, filepath.Join(file, "below"), nil, "is a file, or lies below one")
	refused(t, filepath.Dir(dir), nil, "holds other files", "name an empty or a new directory")
	manifests, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	if err != nil || len(manifests) == 0 {
		t.Fatal(manifests, err)
	}
	flip(t, slices.Max(manifests))
	refused(t, dir, nil, "is damaged", "restore the directory from a backup")
	flip(t, slices.Max(manifests))

	s = startServe(t, nil, "--store", "pebble:"+dir)
	api.Move(s.ready.HTTP)
	if m, err := api.Get(t.Context(), "kept"); err != nil || m.Status != "PENDING" {
		t.Errorf("after all the refused starts: %+v, %v", m, err)
	}
	stopServe(t, s)
}

// A directory that may not be written to is refused with an explanation. The superuser may
// write anywhere, so its directory is in a read-only file system.
func TestServeRefusesAReadOnlyStore(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir := filepath.Join(parent, "store")
	if os.Geteuid() == 0 {
		if err := syscall.Mount("tmpfs", parent, "tmpfs", syscall.MS_RDONLY, "size=1m"); err != nil {
			t.Fatalf("this test needs the right to mount, or to run as somebody else than the superuser: %v", err)
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(parent, 0); err != nil {
				t.Error(err)
			}
		})
	} else if err := os.Chmod(parent, 0o555); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, nil, dir, "cannot be written", "or name another directory")
}

func stopServe(t *testing.T, s *serving) {
	t.Helper()
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, &s.stderr)
	}
}

// refused fails the test if a node starts on the directory, or does not say why not.
func refused(t *testing.T, dir string, more []string, words ...string) {
	t.Helper()
	cmd := command(t, append([]string{"serve", "--http", "127.0.0.1:0", "--log-level", "error", "--store", "pebble:" + dir}, more...)...)
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != exitFailed {
		t.Errorf("it ended with %v, want exit code %d; it said: %s", err, exitFailed, out)
	}
	if !strings.HasPrefix(string(out), "postdate: ") {
		t.Errorf("it said: %s", out)
	}
	for _, w := range words {
		if !strings.Contains(string(out), w) {
			t.Errorf("it did not say %q: %s", w, out)
		}
	}
}

// flip flips a byte at the beginning of a file, or flips it back.
func flip(t *testing.T, name string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil || len(b) < 20 {
		t.Fatal(name, len(b), err)
	}
	b[10] ^= 0xff
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
}
