package node_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestProfiles asks for profiles as an operator does, and as a web page that gave this machine a name.
func TestProfiles(t *testing.T) {
	t.Parallel()
	c := config(t)
	c.Pprof = "127.0.0.1:0"
	n, _ := start(t, c)
	get := func(path, host, site string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(patient(t), http.MethodGet, "http://"+n.ProfilesAddr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			req.Host = host
		}
		if site != "" {
			req.Header.Set("Sec-Fetch-Site", site)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	if code, body := get("/debug/pprof/goroutine?debug=1", "", "none"); code != 200 || !strings.Contains(body, "node.(*loop).run") {
		t.Errorf("the profile of goroutines is %d: %.200s", code, body)
	}
	for _, path := range []string{"/debug/pprof/heap", "/debug/pprof/", "/debug/pprof/symbol",
		"/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=0.01"} {
		if code, body := get(path, "", ""); code != 200 {
			t.Errorf("%s is %d: %.200s", path, code, body)
		}
	}
	if code, _ := get("/debug/pprof/cmdline", "", ""); code != 404 {
		t.Errorf("the command line, which may hold secrets, is %d", code)
	}
	if code, _ := get("/debug/pprof/heap", "rebound.example:6060", ""); code != 403 {
		t.Errorf("a name that points to this machine is %d", code)
	}
	if code, _ := get("/debug/pprof/heap?gc=1", "", "cross-site"); code != 403 {
		t.Errorf("a web page's request is %d", code)
	}
}

// TestNoProfiles checks that none are served unless they are asked for, and to this machine alone.
func TestNoProfiles(t *testing.T) {
	t.Parallel()
	n, _ := start(t, config(t))
	if at := n.ProfilesAddr(); at != "" {
		t.Errorf("profiles are served at %s", at)
	}
	for _, address := range []string{"0.0.0.0:6060", ":6060", "127.0.0.1", "10.0.0.1:6060", "host.example:6060"} {
		c := config(t)
		c.Pprof = address
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "--pprof") {
			t.Errorf("--pprof %s: %v", address, err)
		}
	}
}
