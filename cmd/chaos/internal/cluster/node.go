//go:build linux

package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/postdate/postdate/client"
)

// readyTimeout bounds a start, which waits for a primary, perhaps on a busy machine.
const readyTimeout = 90 * time.Second

// Node is one postdate process, which may be started many times. Its methods are safe for
// concurrent use, but only one caller at a time may start or end it.
type Node struct {
	// Number counts from 1; Name is the node's --node-id.
	Number int
	Name   string
	// Store and Broker are the node's ways to MongoDB and RabbitMQ; nil if the cluster is not
	// isolated.
	Store, Broker *Gate

	cluster *Cluster
	space   *namespace // nil: the machine's own
	args    []string
	api     *client.Client

	mu    sync.Mutex
	wants bool // it should be running
	crash error
	cmd   *exec.Cmd
	http  string
	up    bool
	ended chan struct{} // closed when the present run has ended
	err   error         // how it ended; read after ended
}

// Start starts the process and returns when the node reports that it is ready.
func (n *Node) Start() error {
	log, err := os.OpenFile(n.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(n.cluster.binary, n.args...)
	switch {
	case n.space != nil:
		cmd = n.space.command(n.cluster.binary, n.args...)
	case n.cluster.Disk != nil:
		cmd = n.cluster.Disk.command(n.cluster.binary, n.args...)
	}
	cmd.Dir, cmd.Stderr = n.cluster.dir, log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "--- start at %s\n", time.Now().Format(time.StampMilli))
	if err := spawn(cmd); err != nil {
		return err
	}
	ended := make(chan struct{})
	n.mu.Lock()
	n.cmd, n.ended, n.wants = cmd, ended, true
	n.mu.Unlock()
	ready := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var line struct{ Msg, HTTP string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "ready" {
				ready <- line.HTTP
			}
		}
		err := cmd.Wait()
		n.mu.Lock()
		n.up, n.err = false, err
		if n.wants {
			n.crash = fmt.Errorf("%s ended by itself at %s: %v, see %s",
				n.Name, time.Now().Format("15:04:05.000"), err, n.LogPath())
		}
		n.mu.Unlock()
		close(ended)
	}()
	select {
	case http := <-ready:
		n.mu.Lock()
		n.http, n.up = http, true
		n.mu.Unlock()
		return nil
	case <-ended:
		return fmt.Errorf("%s ended at its start: %w, see %s", n.Name, n.err, n.LogPath())
	case <-time.After(readyTimeout):
		_ = n.Kill()
		return fmt.Errorf("%s was not ready after %s, see %s", n.Name, readyTimeout, n.LogPath())
	}
}

// LogPath returns the path of the node's log.
func (n *Node) LogPath() string { return filepath.Join(n.cluster.dir, n.Name+".log") }

// Up reports whether the node was ready and has not ended, as far as is known. A node stopped
// by a signal is up.
func (n *Node) Up() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.up
}

// Running reports whether there is a process, ready or not.
func (n *Node) Running() bool {
	_, ended := n.run()
	if ended == nil {
		return false
	}
	select {
	case <-ended:
		return false
	default:
		return true
	}
}

func (n *Node) run() (*exec.Cmd, chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cmd, n.ended
}

// Signal sends a signal to the process, for example SIGSTOP or SIGCONT.
func (n *Node) Signal(s syscall.Signal) error {
	cmd, _ := n.run()
	return cmd.Process.Signal(s)
}

// expectEnd notes that the process is about to end, so that no call goes to it.
func (n *Node) expectEnd() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wants, n.up = false, false
}

// Crash returns an error if the process ended by itself.
func (n *Node) Crash() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.crash
}

// Kill kills the process with SIGKILL, and returns when it has ended.
func (n *Node) Kill() error {
	_, ended := n.run()
	n.expectEnd()
	if err := n.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", n.Name, err)
	}
	<-ended
	return nil
}

// Stop stops the process in an orderly way, or returns an error.
func (n *Node) Stop() error {
	_, ended := n.run()
	n.expectEnd()
	if err := n.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", n.Name, err)
	}
	select {
	case <-ended:
	case <-time.After(readyTimeout):
		return fmt.Errorf("%s has not ended %s after SIGTERM", n.Name, readyTimeout)
	}
	if n.err != nil {
		return fmt.Errorf("%s did not end in order: %w, see %s", n.Name, n.err, n.LogPath())
	}
	return nil
}

// dial connects to the node's HTTP address, even if the node is cut off from others.
func (n *Node) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n.mu.Lock()
	address := n.http
	n.mu.Unlock()
	if n.space != nil {
		return n.space.dial(ctx, address)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// callTimeout is when a client gives up a call.
const callTimeout = 8 * time.Second

// API returns a client of this node. It tries each call once, and schedules or cancels each
// message in a request of its own.
func (n *Node) API() *client.Client { return n.api }

func (n *Node) newAPI() (*client.Client, error) {
	return client.New(client.Config{
		Servers: []string{n.Name}, AnswerTimeout: callTimeout, RetryFor: -1, Requests: 10_000,
		HTTP: &http.Client{Transport: &http.Transport{DialContext: n.dial, MaxIdleConnsPerHost: 64,
			IdleConnTimeout: 20 * time.Second}},
	})
}
