//go:build linux

package cluster

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// The kernel kills a child with Pdeathsig when the thread that started it ends,
// and not only when its process does. So one thread, which never ends, starts
// them all.
var spawner = sync.OnceValue(func() chan func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// spawn starts a process that does not outlive this one, however this one ends.
func spawn(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr.Setpgid = true // an interrupt at the terminal is for the campaign alone
	result := make(chan error)
	spawner() <- func() { result <- cmd.Start() }
	return <-result
}
