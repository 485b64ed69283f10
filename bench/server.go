package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout = time.Minute
	stopTimeout  = 20 * time.Second
)

// server is a peer's server as a process. It can be killed, and started again on its data.
type server struct {
	binary  string
	command command
	address string
	log     string // the file for what it prints
	root    string // removed if this program is killed

	process *exec.Cmd     // nil: it is not running
	ended   chan struct{} // closed when the process has ended
	watch   *exec.Cmd
	spent   time.Duration // processor time of processes that have ended
}

// start starts the process and returns when it is ready.
func (s *server) start(ctx context.Context) error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.binary, s.command.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's interrupt must not reach it
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start the server: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended does not matter: it was stopped, or is missed below
		close(ended)
	}()
	s.process, s.ended = cmd, ended
	if err := s.startWatch(); err != nil {
		return err
	}
	timeout := time.After(startTimeout)
	for {
		err := s.ready()
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("the server ended at its start: %s", tail(s.log))
		case <-timeout:
			return fmt.Errorf("the server was not ready within %v: %w: %s", startTimeout, err, tail(s.log))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// startWatch starts a small shell that reads from a pipe of this program. If this program is
// killed, the pipe closes, and the shell kills the server and removes all that was written.
func (s *server) startWatch() error {
	script := `read -r _; kill -s KILL -- "-$1"; rm -rf "$2"`
	s.watch = exec.Command("sh", "-c", script, "watch", fmt.Sprint(s.process.Process.Pid), s.root)
	s.watch.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if _, err := s.watch.StdinPipe(); err != nil {
		return err
	}
	if err := s.watch.Start(); err != nil {
		s.watch = nil
		return fmt.Errorf("cannot start a shell that watches over the server: %w", err)
	}
	return nil
}

// ready asks the server whether it is ready.
func (s *server) ready() error {
	conn, err := net.DialTimeout("tcp", s.address, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second)) // fails only on a closed connection
	if _, err := io.WriteString(conn, s.command.send); err != nil {
		return err
	}
	answer := make([]byte, 256)
	n, err := conn.Read(answer)
	if err != nil {
		return err
	}
	if !strings.Contains(string(answer[:n]), s.command.want) {
		return fmt.Errorf("it answers %q", answer[:n])
	}
	return nil
}

// kill kills the server with SIGKILL.
func (s *server) kill() {
	_ = s.process.Process.Kill() // fails only if it has ended
	s.wait()
}

// stop stops the server in an orderly way, if it runs.
func (s *server) stop() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	select {
	case <-s.ended:
		s.wait()
	case <-time.After(stopTimeout):
		s.kill()
	}
}

// wait waits until the process has ended. The watch goes first: later, its process id could be
// another one's.
func (s *server) wait() {
	<-s.ended
	if s.watch != nil {
		_ = s.watch.Process.Kill() // as above
		_ = s.watch.Wait()         // returns that it was killed
	}
	s.spent += s.process.ProcessState.UserTime() + s.process.ProcessState.SystemTime()
	s.process, s.watch = nil, nil
}

// tail returns the end of a file, for error messages.
func tail(path string) string {
	text, _ := os.ReadFile(path)
	return string(bytes.TrimSpace(text[max(0, len(text)-2000):]))
}

// freeAddress returns a loopback address on which nothing listens. Its port lies below those that
// Linux gives to outgoing connections: one of those could take it while the server is down.
func freeAddress() (string, error) {
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", 15_000+rand.IntN(17_000))
		if l, err := net.Listen("tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", errors.New("no port between 15000 and 32000 is free on 127.0.0.1")
}
