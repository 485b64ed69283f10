//go:build linux

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Disk is a small file system in memory that only the nodes see. It is mounted in a mount
// namespace of its own and disappears with the process that holds it.
type Disk struct {
	holder *exec.Cmd
	path   string
}

// newDisk mounts a file system of that many MiB at path.
func newDisk(path string, mib int) (*Disk, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	d := &Disk{path: path, holder: exec.Command("sh", "-c",
		`mount -t tmpfs -o size="$1"m tmpfs "$2" && : >"$2/mounted" && exec sleep infinity`, "sh", fmt.Sprint(mib), path)}
	d.holder.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if err := spawn(d.holder); err != nil {
		return nil, fmt.Errorf("a file system cannot be mounted here, only root may: %w", err)
	}
	for range 100 {
		if _, err := os.Stat(d.inside("mounted")); err == nil {
			return d, nil
		}
		time.Sleep(20 * time.Millisecond) // polls: another process's mount gives no signal
	}
	d.close()
	return nil, fmt.Errorf("the small file system was not mounted at %s", path)
}

// inside returns the path by which this process reaches a file on the disk.
func (d *Disk) inside(name string) string {
	return filepath.Join("/proc", fmt.Sprint(d.holder.Process.Pid), "root", d.path, name)
}

func (d *Disk) command(program string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", fmt.Sprint(d.holder.Process.Pid), "-m", "--", program},
		args...)...)
}

func (d *Disk) close() {
	_ = d.holder.Process.Kill()
	_ = d.holder.Wait()
}

// Fill fills the disk.
func (d *Disk) Fill() error {
	f, err := os.Create(d.inside("ballast"))
	if err != nil {
		return err
	}
	defer f.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	return nil
}

// Free frees what Fill has taken.
func (d *Disk) Free() error { return os.Remove(d.inside("ballast")) }
