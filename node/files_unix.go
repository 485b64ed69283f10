//go:build unix

package node

import "golang.org/x/sys/unix"

// filesLimit returns how many files the process may open. Go has raised the soft limit to the
// hard one at the start.
func filesLimit() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return filesDefault
	}
	return uint64(limit.Cur)
}
