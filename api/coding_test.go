package api

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/postdate/postdate"
	"github.com/valyala/fasthttp"
)

// zipped compresses, with Go's own gzip.
func zipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	must(z.Write([]byte(text)))
	must(0, z.Close())
	return b.String()
}

// A body may come compressed, on each call that takes one.
func TestGzip(t *testing.T) {
	r := newRig(t)
	const coding = "Content-Encoding: gzip"
	if a := r.send("POST", "/v1/messages", zipped(order("a")), coding); a.status != 201 {
		t.Error(a.status, a.body)
	}
	if a := r.send("POST", "/v1/messages", order("a")); a.status != 200 {
		t.Errorf("it is not the same uncompressed: %d %s", a.status, a.body)
	}
	if a := r.send("PUT", "/v1/messages/b", zipped(order("b")[:20])+zipped(order("b")[20:]), "Content-Encoding: X-Gzip"); a.status != 201 {
		t.Errorf("in two members: %d %s", a.status, a.body)
	}
	if a := r.send("PATCH", "/v1/messages/b", zipped(`{"delay":"1h"}`), coding); a.status != 200 {
		t.Error(a.status, a.body)
	}
	lines := strings.Repeat(order("line")+"\n", 1000)
	if a := r.send("POST", "/v1/messages/batch", zipped(lines), coding, "Content-Type: application/x-ndjson"); a.status != 200 || strings.Count(a.body, "PENDING") != 1000 {
		t.Errorf("%d %.300s", a.status, a.body)
	}
	r.send("POST", "/v1/messages/cancel", zipped(`{"scheduleIds":["a"]}`), coding).want(200, `{"results":[{"scheduleId":"a","status":"CANCELLED"}]}`)
	r.send("POST", "/v1/messages", "", coding).problem(400, MalformedJSON, "empty")
	r.send("POST", "/v1/messages", zipped(""), coding).problem(400, MalformedJSON, "empty")
	r.send("POST", "/v1/messages", order("plain"), "Content-Encoding: identity")
	if left := r.server.bodies.left.Load(); left != int64(r.server.config.BodiesBytesMax) {
		t.Errorf("%d of %d bytes are left when nothing has come", left, r.server.config.BodiesBytesMax)
	}
}

// What is not gzip is refused, and so is another coding.
func TestNoGzip(t *testing.T) {
	r := newRig(t)
	whole := zipped(order("a"))
	flipped := []byte(whole)
	flipped[len(flipped)-5] ^= 1 // of the checksum
	for name, body := range map[string]string{
		"plain JSON":        order("a"),
		"half of it":        whole[:len(whole)/2],
		"half a head":       whole[:5],
		"no checksum":       whole[:len(whole)-8],
		"a wrong checksum":  string(flipped),
		"something after":   whole + "x",
		"JSON after":        whole + order("b"),
		"a second one, cut": whole + whole[:20],
		"cut in a comment":  whole + "\x1f\x8b\b\x10" + strings.Repeat("0", 6),
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			r.send("POST", "/v1/messages", body, "Content-Encoding: gzip").problem(400, BadRequest, "is not gzip")
		})
	}
	r.t = t
	for _, codings := range [][]string{{"br"}, {"gzip, gzip"}, {"gzip", "gzip"}, {"deflate"}, {"zstd"}, {"gzip, identity"}} {
		var headers []string
		for _, coding := range codings {
			headers = append(headers, "Content-Encoding: "+coding)
		}
		a := r.send("POST", "/v1/messages", whole, headers...).problem(415, UnsupportedContent, "gzip")
		if a.header.Get("Accept-Encoding") != "gzip" {
			t.Errorf("%q: the answer does not say what is taken: %v", codings, a.header)
		}
	}
	r.send("GET", "/v1/messages/a", "").problem(404, NotFound)
}

// A small body that holds a large one is read as far as the limit, and takes no memory from the others' share.
func TestGzipBombs(t *testing.T) {
	r := newRig(t)
	bomb := zipped(strings.Repeat(" ", 200<<20))
	if len(bomb) > r.server.singleBytesMax() {
		t.Fatal(len(bomb))
	}
	r.send("POST", "/v1/messages", bomb, "Content-Encoding: gzip").problem(413, TooLarge, "uncompressed")
	r.send("POST", "/v1/messages/batch", bomb, "Content-Encoding: gzip").problem(413, TooLarge, "uncompressed")
	if left := r.server.bodies.left.Load(); left != int64(r.server.config.BodiesBytesMax) {
		t.Errorf("%d of %d bytes are left when nothing has come", left, r.server.config.BodiesBytesMax)
	}
	r.server.bodies.take(r.server.config.BodiesBytesMax - 64<<10)
	r.send("POST", "/v1/messages/batch", bomb, "Content-Encoding: gzip").problem(503, Unavailable, "surely nothing was done")
	if a := r.send("POST", "/v1/messages", zipped(order("small")), "Content-Encoding: gzip"); a.status != 201 {
		t.Errorf("a small one: %d %s", a.status, a.body)
	}
	if left := r.server.bodies.left.Load(); left != 64<<10 {
		t.Errorf("%d bytes are left", left)
	}
}

// However broken what is sent, no more is inflated than the limit, and what Go's own gzip reads is read alike.
func FuzzGzip(f *testing.F) {
	for _, seed := range []string{"", zipped(""), zipped(order("a")), zipped(order("a")) + zipped("b"), zipped(strings.Repeat("a", 100_000)), zipped("a")[:15], "\x1f\x8b\b\x1c", zipped("a") + "b"} {
		f.Add([]byte(seed))
	}
	const most = 50_000
	f.Fuzz(func(t *testing.T, body []byte) {
		var s Server
		s.bodies.give(most + 1)
		plain, p := s.inflated(&fasthttp.RequestCtx{}, body, most)
		if p != nil && p.Type == Unavailable {
			t.Fatalf("%d bytes took more than %d", len(body), most+1)
		}
		if p != nil {
			checkedProblem(t, p)
			return
		}
		want, err := gunzip(body)
		if err != nil || len(plain) > most || !bytes.Equal(plain, want) {
			t.Fatalf("%d bytes, want %d, %v", len(plain), len(want), err)
		}
	})
}

func gunzip(body []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = b.ReadFrom(z)
	return b.Bytes(), err
}

// A compressed body and what it holds are in memory together, and an idle node has room for both.
func TestGzipOfALargeBatch(t *testing.T) {
	if room := (Config{}).withDefaults().BodiesBytesMax; gzipBytesMax+postdate.BatchBytesMax > room {
		t.Errorf("%d and %d bytes do not fit into %d", gzipBytesMax, postdate.BatchBytesMax, room)
	}
	r := newRig(t)
	r.send("POST", "/v1/messages/batch", strings.Repeat("x", gzipBytesMax+1), "Content-Encoding: gzip").
		problem(413, TooLarge, "33,554,433 bytes long", "at most 33,554,432 bytes")
}
