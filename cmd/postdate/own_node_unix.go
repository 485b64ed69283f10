//go:build unix

package main

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// detach keeps a terminal's interrupt, which goes to the whole process group, away from the
// child: it gets its signal after the last reading.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// allocated returns the disk space that a file takes, in bytes.
func allocated(info os.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * 512 // always in units of 512 bytes
	}
	return info.Size()
}

// peakMemory returns the largest resident size of a process that has ended, in bytes; 0: not
// known.
func peakMemory(state *os.ProcessState) int64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return int64(usage.Maxrss)
	}
	return int64(usage.Maxrss) << 10 // other systems count in KiB
}
