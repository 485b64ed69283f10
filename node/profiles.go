package node

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"golang.org/x/net/netutil"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
)

// profileConnectionsMax bounds how many files profiles take from the store.
const profileConnectionsMax = 8

// profiles serves Go's profiles of this process, at an address that only this machine reaches.
type profiles struct {
	server   *http.Server
	listener net.Listener
}

// serveProfiles begins to serve. The profile of the command line is left out: it may hold secrets.
func serveProfiles(address string, log *slog.Logger) (*profiles, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, postdate.E(postdate.KindUnavailable, "cannot listen on --pprof %s: %w; name a free address of "+
			"this machine like 127.0.0.1:6061", address, err)
	}
	if !api.IsLoopback(listener.Addr().String()) { // localhost may stand for another address
		return nil, errors.Join(invalid("--pprof %s is not a loopback address here: write 127.0.0.1", address),
			listener.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	p := &profiles{listener: listener,
		server: &http.Server{Handler: notForPages(mux), ReadHeaderTimeout: 10 * time.Second}}
	p.server.SetKeepAlivesEnabled(false)
	log.Info("serving profiles", "at", "http://"+listener.Addr().String()+"/debug/pprof/")
	go func() {
		err := p.server.Serve(netutil.LimitListener(listener, profileConnectionsMax))
		if !errors.Is(err, http.ErrServerClosed) {
			log.Error("profiles are no longer served: start the node again to have them", "error", err)
		}
	}()
	return p, nil
}

// notForPages refuses what a browser sends for a web page, and what comes under a name that a page chose for this
// machine.
func notForPages(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site")
		if !api.IsLoopback(r.Host) || site != "" && site != "none" && site != "same-origin" {
			http.Error(w, "no web page gets profiles: ask 127.0.0.1 or localhost for them", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func (p *profiles) close() { p.server.Close() }
