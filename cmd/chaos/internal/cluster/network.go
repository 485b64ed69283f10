//go:build linux

package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Every node of an isolated cluster has a network namespace of its own. A veth pair connects it
// to a bridge in one more namespace, the switch. The switch has no way out, and the machine's
// own network is not changed. A namespace lives as long as the process that was started in it,
// so all of them end with this program.
//
// MongoDB and RabbitMQ listen on the machine's own loopback. In each namespace a [Gate] listens
// at the same addresses and forwards connections, so that the driver finds the members of the
// replica set under their configured names, and each node can be cut off from the store
// separately.

// namespace is a network namespace, held by a sleeping process.
type namespace struct{ holder *exec.Cmd }

// canIsolate says why this process cannot make network namespaces; nil if it can.
func canIsolate() error {
	for _, program := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("network namespaces need the program %s (Debian: iproute2, util-linux): %w", program, err)
		}
	}
	n, err := newNamespace()
	if err != nil {
		return err
	}
	n.close()
	return nil
}

func newNamespace() (*namespace, error) {
	n := &namespace{holder: exec.Command("sleep", "infinity")}
	n.holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := spawn(n.holder); err != nil {
		return nil, fmt.Errorf("network namespaces cannot be made here, only root may: %w", err)
	}
	if err := n.ip("link", "set", "lo", "up"); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (n *namespace) close() {
	_ = n.holder.Process.Kill()
	_ = n.holder.Wait()
}

func (n *namespace) pid() string { return fmt.Sprint(n.holder.Process.Pid) }

// command prepares a program that runs in the namespace.
func (n *namespace) command(program string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", n.pid(), "-n", "--", program}, args...)...)
}

// ip runs ip in the namespace.
func (n *namespace) ip(args ...string) error {
	if out, err := n.command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// within runs f on a thread in the namespace. Sockets that f opens stay there.
func (n *namespace) within(f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		result <- func() error {
			fd, err := os.Open("/proc/" + n.pid() + "/ns/net")
			if err != nil {
				return err
			}
			defer fd.Close()
			if err := unix.Setns(int(fd.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("entering a network namespace: %w", err)
			}
			return f()
		}()
	}()
	return <-result
}

// dial connects, in the namespace, to a TCP address whose host is an IP address.
func (n *namespace) dial(ctx context.Context, address string) (conn net.Conn, err error) {
	var d net.Dialer
	err = n.within(func() (err error) {
		conn, err = d.DialContext(ctx, "tcp", address)
		return err
	})
	return conn, err
}

// wires is the switch and its bridge.
type wires struct{ *namespace }

func newWires() (*wires, error) {
	n, err := newNamespace()
	if err != nil {
		return nil, err
	}
	w := &wires{n}
	if err = n.ip("link", "add", "bridge0", "type", "bridge"); err == nil {
		err = n.ip("link", "set", "bridge0", "up")
	}
	if err != nil {
		n.close()
		return nil, err
	}
	return w, nil
}

// address returns the private address of node number i, which exists only between the
// namespaces.
func address(i int) string { return fmt.Sprintf("10.213.77.%d", i) }

// attach gives node number i a namespace with a wire to the switch.
func (w *wires) attach(i int) (*namespace, error) {
	n, err := newNamespace()
	if err != nil {
		return nil, err
	}
	port := fmt.Sprintf("port%d", i)
	for _, err := range []error{
		w.ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", n.pid()),
		w.ip("link", "set", port, "master", "bridge0"),
		w.ip("link", "set", port, "up"),
		n.ip("addr", "add", address(i)+"/24", "dev", "eth0"),
		n.ip("link", "set", "eth0", "up"),
	} {
		if err != nil {
			n.close()
			return nil, err
		}
	}
	return n, nil
}

// plug connects node number i to the switch, or disconnects it.
func (w *wires) plug(i int, in bool) error {
	state := "down"
	if in {
		state = "up"
	}
	return w.ip("link", "set", fmt.Sprintf("port%d", i), state)
}
