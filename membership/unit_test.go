package membership

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/postdate/postdate"
)

func TestConfigInWords(t *testing.T) {
	good := Config{Name: "a", Bind: "127.0.0.1:7946"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(c *Config){
		"--node-id":          func(c *Config) { c.Name = "" },
		"label":              func(c *Config) { c.Label = strings.Repeat("x", 256) },
		"--gossip ":          func(c *Config) { c.Bind = "7946" },
		"port must be":       func(c *Config) { c.Bind = "127.0.0.1:99999" },
		"--gossip-advertise": func(c *Config) { c.Advertise = "0.0.0.0:7946" },
		"--join":             func(c *Config) { c.Seeds = []string{"somewhere"} },
		"host and port":      func(c *Config) { c.Seeds = []string{"somewhere:0"} },
		"openssl rand":       func(c *Config) { c.Keys = [][]byte{[]byte("0123456789012345"), []byte("short")} },
		"HTTP address":       func(c *Config) { c.Meta.HTTP = strings.Repeat("x", 600) },
	} {
		c := good
		change(&c)
		if err := c.Validate(); postdate.KindOf(err) != postdate.KindInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("want a sentence with %q, got %v", want, err)
		}
	}
}

func TestKeys(t *testing.T) {
	for text, want := range map[string]int{
		"0123456789012345": 16, "012345678901234567890123": 24, "01234567890123456789012345678901": 32,
		"MDEyMzQ1Njc4OTAxMjM0NQ==": 16, "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=": 32,
	} {
		if key, err := keyOf([]byte(text)); err != nil || len(key) != want {
			t.Errorf("%q gives %d bytes and %v, want %d", text, len(key), err, want)
		}
	}
}

func TestMeta(t *testing.T) {
	for _, m := range []Meta{{}, {Lease: "a/1"}, {HTTP: "10.0.0.1:8080"}, {Lease: "a/1", HTTP: "[::1]:80"}} {
		b, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if got := decodeMeta(b); got != m {
			t.Errorf("got %+v, want %+v", got, m)
		}
	}
	if got := decodeMeta([]byte("something else")); got != (Meta{}) {
		t.Errorf("what is not understood gives %+v", got)
	}
	if _, err := (Meta{Lease: "a\x00b"}).encode(); err == nil {
		t.Error("a zero byte was taken")
	}
}

func heardOf(name string, port int) *memberlist.Node {
	return &memberlist.Node{Name: name, Addr: net.IPv4(10, 0, 0, 1), Port: uint16(port)}
}

// Seeds and lost nodes are tried, members and nodes that left are not, and nodes that
// have been gone for long are forgotten.
func TestWhoIsTried(t *testing.T) {
	r, now := roster{}, time.Now()
	r.note(heardOf("alive", 1), StateAlive, now)
	r.note(heardOf("lost", 2), StateLost, now)
	r.note(heardOf("left", 3), StateLeft, now)
	r.note(heardOf("long lost", 4), StateLost, now.Add(-2*time.Hour))
	r.forget(now, time.Hour)
	got := r.missing([]string{"10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:9"})
	if want := []string{"10.0.0.1:2", "10.0.0.1:9"}; !slices.Equal(got, want) {
		t.Errorf("tries %v, want %v", got, want)
	}
	// A node that returned at another address is not tried at the old one.
	r.note(heardOf("lost", 5), StateAlive, now)
	if got := r.missing(nil); len(got) != 0 {
		t.Errorf("tries %v", got)
	}
}

func TestExplain(t *testing.T) {
	for line, want := range map[string]string{
		`[ERR] memberlist: discarding packet with unacceptable label "x": from=10.0.0.7:51234`:                     "10.0.0.7 belongs to another cluster",
		"[ERR] memberlist: Decrypt packet failed: no installed keys could decrypt the message from=10.0.0.7:51234": "10.0.0.7 encrypts with a --gossip-key that this one does not have",
		"[ERR] memberlist: failed to receive: encryption is configured but remote state is not encrypted":          "encrypts with a --gossip-key",
		"[ERR] memberlist: Failed fallback TCP ping: EOF":                                                          "",
	} {
		_, err := explain(line, "?")
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%s\nis explained as %s", line, got)
		}
	}
}

func TestNudgesInPackets(t *testing.T) {
	var nudges []Nudge
	for i := range 1000 {
		at := postdate.Time(1 + i*i*1000)
		if i%3 == 0 {
			at = postdate.LatestTime - postdate.Time(i)
		}
		nudges = append(nudges, Nudge{i * 7 % postdate.BucketsMax, at})
	}
	var got []Nudge
	for _, p := range encodeNudges(nudges) {
		if len(p) > packetBytesMax || p[0] != packetNudges {
			t.Fatalf("a packet of %d bytes and kind %d", len(p), p[0])
		}
		part, ok := decodeNudges(p[1:])
		if !ok {
			t.Fatal("a packet of ours is not understood")
		}
		got = append(got, part...)
	}
	if !slices.Equal(got, nudges) {
		t.Error("what arrives is not what was sent")
	}
	if len(encodeNudges(nil)) != 0 {
		t.Error("nothing is sent as something")
	}
}

func FuzzNudges(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 2, 3})
	f.Add(encodeNudges([]Nudge{{0, 1}, {63, 1_800_000_000_000}, {16383, postdate.LatestTime}})[0][1:])
	f.Add(slices.Repeat([]byte{0xff}, 24))
	f.Fuzz(func(t *testing.T, b []byte) {
		nudges, ok := decodeNudges(b)
		if !ok {
			if nudges != nil {
				t.Fatal("nudges of a packet that does not count")
			}
			return
		}
		for _, n := range nudges {
			if n.Bucket < 0 || n.Bucket >= postdate.BucketsMax || n.At < postdate.EarliestTime || n.At > postdate.LatestTime {
				t.Fatalf("out of range: %+v", n)
			}
		}
		var again []Nudge
		for _, p := range encodeNudges(nudges) {
			part, ok := decodeNudges(p[1:])
			if !ok {
				t.Fatal("what was understood is not, encoded again")
			}
			again = append(again, part...)
		}
		if !slices.Equal(again, nudges) {
			t.Fatalf("%v became %v", nudges, again)
		}
	})
}
