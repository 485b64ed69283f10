package main

import (
	"bufio"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
)

// The demo's console is there until it is interrupted, and has something to show: messages of each end.
func TestDemoConsole(t *testing.T) {
	t.Parallel()
	cmd := command(t, "demo", "--console")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, address := bufio.NewScanner(stdout), ""
	for address == "" && lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); strings.HasSuffix(line, "/console") {
			address = line
		}
	}
	page, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	page.Body.Close()
	if kind := page.Header.Get("Content-Type"); page.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "text/html") {
		t.Errorf("the page is %s, %s", page.Status, kind)
	}
	c, err := client.New(client.Config{Servers: []string{strings.TrimSuffix(address, "/console")}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = nodetest.Poll(t.Context(), func() (bool, error) {
		stats, err := c.Stats(t.Context())
		some := stats.Total
		return some.Scheduled > 0 && some.Delivered > 0 && some.Failed > 0 && some.Cancelled > 0, err
	})
	if err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if left, err := os.ReadDir(cmd.Dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v (%v)", left, err)
	}
}
