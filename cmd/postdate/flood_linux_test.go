package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/client"
)

// floodMemoryMax is what the node of TestFlood may take, in bytes.
const floodMemoryMax = 600 << 20

// TestFlood runs a node that may open 512 files, and attacks it in all ways at once: clients
// that connect and ask nothing, or half a request, or announce large bodies, and webhooks that
// are never answered. A client that behaves sees nothing of it: its messages are taken and
// delivered, and the node stays within its memory. The test logs how late they were.
func TestFlood(t *testing.T) {
	hook := hangingReceiver(t)
	cmd := command(t, "serve", "--http", "127.0.0.1:0", "--log-level", "warn", "--store", "pebble:"+filepath.Join(t.TempDir(), "s"),
		"--webhook-allow", "127.0.0.0/8")
	plain := filepath.Join(t.TempDir(), "postdate") // the race detector, if it is on, multiplies the memory
	if out, err := exec.Command("go", "build", "-o", plain, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	limited := []string{"/bin/sh", "-c", `ulimit -n 512; exec "$0" "$@"`, plain}
	cmd.Path, cmd.Args = limited[0], append(limited, cmd.Args[1:]...)
	node := startNode(t, cmd)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := client.New(client.Config{Servers: []string{"http://" + node.ready.HTTP}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 500 {
		_, err := c.Schedule(ctx, client.Message{ScheduleID: fmt.Sprint("hook-", i), Payload: []byte(`1`), Delay: time.Millisecond,
			Channel: fmt.Sprintf("http://127.1.%d.%d:%d/hook", i/200, i%200+1, hook)})
		if err != nil {
			t.Fatal(err)
		}
	}
	stop := attack(t, node.ready.HTTP)
	late := behave(ctx, t, c)
	stop()
	slices.Sort(late)
	memory := mostMemory(t, node.Process.Pid)
	t.Logf("%d messages: late by p50 %s, p99 %s, at most %s; the node took %d MiB", len(late), late[len(late)/2],
		late[len(late)*99/100], late[len(late)-1], memory>>20)
	if memory > floodMemoryMax {
		t.Errorf("the node took %d MiB", memory>>20)
	}
	if err := node.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := node.Wait(); err != nil {
		t.Errorf("the node ended: %v\n%s", err, &node.stderr)
	}
}

// hangingReceiver takes connections on all loopback addresses, answers none, and returns its
// port.
func hangingReceiver(t *testing.T) int {
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().(*net.TCPAddr).Port // the kernel completes connections that nobody accepts
}

// attack opens connections that hold what they can until the returned func is called. Those
// that the node ends are opened again.
func attack(t *testing.T, address string) (stop func()) {
	const batch = "POST /v1/messages/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	ctx, cancel := context.WithCancel(t.Context())
	var attackers sync.WaitGroup
	hold := func(n int, says string) {
		for range n {
			attackers.Go(func() {
				for ctx.Err() == nil {
					var d net.Dialer
					conn, err := d.DialContext(ctx, "tcp", address)
					if err != nil {
						continue
					}
					end := context.AfterFunc(ctx, func() { conn.Close() })
					_, _ = conn.Write([]byte(says))
					_, _ = conn.Read(make([]byte, 1)) // until the node ends it
					end()
					conn.Close()
					select {
					case <-ctx.Done():
					case <-time.After(time.Second + rand.N(time.Second)): // they hold connections; they do not take the processor
					}
				}
			})
		}
	}
	hold(2000, "")
	hold(200, "POST /v1/messages HTTP/1.1\r\nHost: loc")
	hold(50, batch+"Content-Length: 67108864\r\n\r\n")
	hold(50, batch+"Content-Length: 67108864\r\n\r\n"+strings.Repeat(" ", 1<<20))
	return func() {
		cancel()
		attackers.Wait()
	}
}

// behave schedules 500 messages a second for some seconds, reads them all from their inbox, and
// returns how late each was.
func behave(ctx context.Context, t *testing.T, c *client.Client) []time.Duration {
	const rounds, each, pause = 100, 25, 50 * time.Millisecond
	scheduled := make(chan error, 1)
	go func() {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for round := range rounds {
			<-tick.C
			messages := make([]client.Message, each)
			for i := range messages {
				messages[i] = client.Message{ScheduleID: fmt.Sprintf("m-%d-%d", round, i), Channel: "inbox:good", Payload: []byte(`1`), Delay: 300 * time.Millisecond}
			}
			results, err := c.ScheduleAll(ctx, messages)
			for _, r := range results {
				err = errors.Join(err, r.Err())
			}
			if err != nil {
				scheduled <- fmt.Errorf("round %d: %w", round, err)
				return
			}
		}
		scheduled <- nil
	}()
	var late []time.Duration
	seen := map[string]bool{}
	after := ""
	for len(late) < rounds*each {
		page, err := c.ReadInbox(ctx, "good", client.InboxRead{After: after, Wait: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		now := postdate.WallOf(time.Now())
		for _, m := range page.Messages {
			if seen[m.ScheduleID] {
				t.Errorf("%s came twice", m.ScheduleID)
			}
			seen[m.ScheduleID] = true
			late = append(late, now.Sub(postdate.WallOf(m.ExecutionTime)))
		}
		after = page.NextCursor
	}
	if err := <-scheduled; err != nil {
		t.Fatal(err)
	}
	return late
}

// mostMemory returns the most memory that a process has had at once, in bytes.
func mostMemory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, peak, _ := bytes.Cut(status, []byte("VmHWM:"))
	kib, err := strconv.Atoi(strings.Fields(string(peak))[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
