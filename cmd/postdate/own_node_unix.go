//go:build unix

package main

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// detach keeps a terminal's interrupt, which goes to the whole process group,
// away from the child: it gets its signal when the last reading is done.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// allocated is what a file takes on the disk, in bytes.
func allocated(info os.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * 512 // always in such units
	}
	return info.Size()
}

// peakMemory is the largest resident size, in bytes, of a process that has
// ended; 0: not known.
func peakMemory(state *os.ProcessState) int64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return int64(usage.Maxrss)
	}
	return int64(usage.Maxrss) << 10 // the others count in KiB
}
