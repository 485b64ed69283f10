package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// ownNode is a node that runs this same binary in a process of its own, so that bench measures
// what users run.
type ownNode struct {
	url    string
	cmd    *exec.Cmd
	stderr *tail
}

// ownNodeConfig says how to start an own node.
type ownNodeConfig struct {
	store    string
	rabbitMQ string // the broker's URL; "": none
	flags    []string
}

// nodeStartTimeout is long, because a large store may first have to replay its log.
const nodeStartTimeout = 2 * time.Minute

// startOwnNode runs "postdate serve" on a free loopback port, and returns when it is ready. The
// broker's URL is passed in the environment, where other users of the machine cannot read it.
func startOwnNode(ctx context.Context, c ownNodeConfig) (*ownNode, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find this program to start a node: %w", err)
	}
	n := &ownNode{stderr: &tail{}}
	n.cmd = exec.Command(binary, append([]string{"serve", "--http", "127.0.0.1:0", "--store", c.store, "--log-level",
		"warn"}, c.flags...)...)
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, envPrefix) {
			n.cmd.Env = append(n.cmd.Env, entry)
		}
	}
	n.cmd.Env = append(n.cmd.Env, envName("rabbitmq")+"="+c.rabbitMQ)
	detach(n.cmd)
	n.cmd.Stderr = n.stderr
	stdout, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start a node: %w", err)
	}
	address, err := awaitReady(ctx, stdout)
	if err != nil {
		_ = n.cmd.Process.Kill()
		_ = n.cmd.Wait()
		return nil, fmt.Errorf("the node did not start: %w\n%s", err, n.stderr)
	}
	n.url = "http://" + address
	return n, nil
}

// awaitReady reads the ready line.
func awaitReady(ctx context.Context, stdout io.Reader) (address string, err error) {
	type answer struct {
		line readyLine
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		text, err := bufio.NewReader(stdout).ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			a.err = errors.New("it ended")
		case err != nil:
			a.err = err
		default:
			a.err = json.Unmarshal(text, &a.line)
		}
		answers <- a
	}()
	select {
	case a := <-answers:
		return a.line.HTTP, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(nodeStartTimeout):
		return "", errors.New("it took too long")
	}
}

// kill kills the node, and returns its peak memory, in bytes.
func (n *ownNode) kill() (memoryBytesMax int64) {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait() // it returns an error: the node was killed
	return peakMemory(n.cmd.ProcessState)
}

// stop stops the node in an orderly way, and returns its peak memory, in bytes.
func (n *ownNode) stop() (memoryBytesMax int64, err error) {
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(stopTimeout, func() { _ = n.cmd.Process.Kill() })
	defer kill.Stop()
	if err := n.cmd.Wait(); err != nil {
		return 0, fmt.Errorf("the node did not stop in order: %w\n%s", err, n.stderr)
	}
	return peakMemory(n.cmd.ProcessState), nil
}

// tail is a writer that keeps the end of what is written.
type tail struct{ kept []byte }

const tailBytesMax = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - tailBytesMax; over > 0 {
		t.kept = t.kept[over:]
	}
	return len(p), nil
}

func (t *tail) String() string { return strings.TrimSpace(string(t.kept)) }
