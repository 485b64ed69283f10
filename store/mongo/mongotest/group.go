package mongotest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// group is a process group that does not outlive the test program. A small
// shell, the watch, holds the far end of a pipe: when the pipe closes, because
// the program closed it, crashed or was killed, the watch kills the group and
// removes its folder.
type group struct {
	id    int
	dir   string
	pipe  io.Closer
	watch *exec.Cmd
	once  sync.Once
}

// newGroup starts the first process of a group that works in dir.
func newGroup(first *exec.Cmd, dir string) (*group, error) {
	g := &group{dir: dir}
	if _, err := g.start(first); err != nil {
		return nil, err
	}
	g.id = first.Process.Pid
	g.watch = exec.Command("sh", "-c", `read -r _; kill -s KILL -- "-$1"; rm -rf "$2"`, "watch", fmt.Sprint(g.id), dir)
	g.watch.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is not for it
	pipe, err := g.watch.StdinPipe()
	if err == nil {
		err = g.watch.Start()
	}
	if err != nil {
		syscall.Kill(-g.id, syscall.SIGKILL)
		return nil, err
	}
	g.pipe = pipe
	return g, nil
}

// start starts a process in the group. The channel is closed at its end.
func (g *group) start(cmd *exec.Cmd) (exit chan struct{}, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.id}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	exit = make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is the test's own doing
		close(exit)
	}()
	return exit, nil
}

// end kills the group and removes its folder.
func (g *group) end() {
	if g == nil {
		return
	}
	g.once.Do(func() {
		g.pipe.Close()
		_ = g.watch.Wait()
		os.RemoveAll(g.dir) // once more: a dying process may have written
	})
}
