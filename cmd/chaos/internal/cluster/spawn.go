//go:build linux

package cluster

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// The kernel kills a child with Pdeathsig when the thread that started it ends, even if the
// process lives on. So one thread that never ends starts all children.
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
	cmd.SysProcAttr.Setpgid = true // a terminal's interrupt must reach only the campaign
	result := make(chan error)
	spawner() <- func() { result <- cmd.Start() }
	return <-result
}
