package membership

import (
	"context"
	"encoding/base64"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
)

const (
	// nameBytesMax bounds a node's name, which travels in every packet about it.
	nameBytesMax = 128

	// DefaultRejoinEvery is how often seeds and lost nodes are tried.
	DefaultRejoinEvery = 5 * time.Second

	// DefaultForgetAfter is when a lost node's address is no longer tried.
	DefaultForgetAfter = time.Hour
)

// Config is what a member needs. Only Name and Bind must be set.
type Config struct {
	// Name is this node's name, which no other node of the cluster has.
	Name string
	// Bind is the address to listen on, host:port, for TCP and UDP. Port 0 picks one.
	Bind string
	// Advertise is the address under which others reach this node; Bind's by
	// default. A host name is looked up once, at the start.
	Advertise string
	// Seeds are addresses host:port of some members. A host name may stand for
	// many addresses, all of which are tried; this node's own among them do no harm.
	Seeds []string
	// Key encrypts and authenticates all gossip: 16, 24 or 32 bytes, or their
	// base64. Empty: whoever reaches the port can join.
	Key []byte
	// Label names the cluster. Nodes with different labels do not hear each other.
	Label string
	// Meta is what the others are to know of this node.
	Meta Meta

	// RejoinEvery and ForgetAfter are DefaultRejoinEvery and DefaultForgetAfter where zero.
	RejoinEvery, ForgetAfter time.Duration

	// OnNudges, OnBroadcast and OnConflict are told what arrives, one call at a
	// time each. The first two must not block, and may keep what they get.
	OnNudges    func(nudges []Nudge)
	OnBroadcast func(payload []byte)
	OnConflict  func(c Conflict)

	// Log gets who comes and goes, and what is wrong; slog.Default() by default.
	Log *slog.Logger
	// Metrics, where set, gets this package's metrics.
	Metrics prometheus.Registerer
}

// Conflict is another node that calls itself as this one does, and still answered
// a while after it was first heard.
type Conflict struct {
	Name, Mine, Other string // the name; the two addresses
	// Yield is true at exactly one of the two: the one that should give up the name.
	Yield bool
}

func (c Config) withDefaults() Config {
	if c.RejoinEvery == 0 {
		c.RejoinEvery = DefaultRejoinEvery
	}
	if c.ForgetAfter == 0 {
		c.ForgetAfter = DefaultForgetAfter
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Validate says what is wrong with c, as a sentence that names the flag.
func (c Config) Validate() error {
	switch {
	case c.Name == "" || len(c.Name) > nameBytesMax:
		return invalid("--node-id must have between 1 and %d bytes", nameBytesMax)
	case len(c.Label) > memberlist.LabelMaxSize:
		return invalid("the cluster's label has %d bytes: at most %d", len(c.Label), memberlist.LabelMaxSize)
	case c.RejoinEvery < 0 || c.ForgetAfter < 0:
		return invalid("the times of a member's config cannot be negative")
	}
	if _, err := keyOf(c.Key); err != nil {
		return err
	}
	if _, err := c.Meta.encode(); err != nil {
		return err
	}
	if _, _, err := split("--gossip", c.Bind); err != nil {
		return err
	}
	if c.Advertise != "" {
		if host, port, err := split("--gossip-advertise", c.Advertise); err != nil {
			return err
		} else if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			return invalid("--gossip-advertise %q is no address that others can reach: name this machine, like 10.0.0.5:%d", c.Advertise, port)
		}
	}
	for _, s := range c.Seeds {
		if host, port, err := split("--join", s); err != nil {
			return err
		} else if host == "" || port == 0 {
			return invalid("--join %q: name host and port of a node's --gossip, like 10.0.0.5:7946", s)
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return postdate.E(postdate.KindInvalid, format, args...)
}

// split takes host:port apart.
func split(flag, address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, invalid("%s %q is not an address: write host:port, like 10.0.0.5:7946", flag, address)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, invalid("%s %q: the port must be a number between 0 and 65535", flag, address)
	}
	return host, int(n), nil
}

// keyOf is the key that these bytes stand for: a key itself, or base64 of one. What
// could be either is taken as it stands, unless it is padded as base64 is.
func keyOf(text []byte) ([]byte, error) {
	fits := func(n int) bool { return n == 16 || n == 24 || n == 32 }
	if len(text) == 0 {
		return nil, nil
	}
	if fits(len(text)) && text[len(text)-1] != '=' {
		return text, nil
	}
	key, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil || !fits(len(key)) {
		return nil, invalid("--gossip-key must be the base64 of 16, 24 or 32 bytes: make one with: openssl rand -base64 32")
	}
	return key, nil
}

// lookup finds the addresses of a host, itself where it is one already.
func lookup(ctx context.Context, resolver *net.Resolver, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip.Unmap()}, nil
	}
	ips, err := resolver.LookupNetIP(ctx, "ip", host)
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	return ips, err
}

// pick is the address to listen on or to advertise among those of a host: IPv4
// where there is one, for that is what most networks speak.
func pick(ctx context.Context, flag, host string) (string, error) {
	ips, err := lookup(ctx, nil, host)
	if err != nil || len(ips) == 0 {
		return "", postdate.E(postdate.KindUnavailable, "%s: no address is known for %q: name an IP address, or mend its DNS entry (%v)", flag, host, err)
	}
	for _, ip := range ips {
		if ip.Is4() {
			return ip.String(), nil
		}
	}
	return ips[0].String(), nil
}

// tuned is the library's configuration. With a probe every half second and four
// probe intervals of suspicion, a node that crashed is suspected within a second or
// so and called gone two seconds later: 3.0 to 3.7 s in all, measured in clusters of
// three to five. Five nodes on two processors that had sixteen other things to do
// raised one false alarm in a minute, which the accused refuted; much shorter times
// would raise many. What a false alarm costs is small: nobody takes the buckets of a
// node whose lease moves.
func (c Config) tuned(key []byte) *memberlist.Config {
	m := memberlist.DefaultLANConfig()
	m.Name, m.Label, m.SecretKey = c.Name, c.Label, key
	m.ProbeInterval, m.ProbeTimeout = 500*time.Millisecond, 300*time.Millisecond
	m.SuspicionMult, m.SuspicionMaxTimeoutMult = 4, 4
	m.GossipInterval = 100 * time.Millisecond
	m.PushPullInterval = 10 * time.Second
	m.TCPTimeout = 3 * time.Second
	m.HandoffQueueDepth = 4096  // nudges pass through it too
	m.EnableCompression = false // packets are small, and nudges many
	// A name may move to another address once its old one is gone: a container
	// that restarts has another address. The wait is only what turns this on: a
	// longer one misses the answer to the news that the old one is gone.
	m.DeadNodeReclaimTime = time.Millisecond
	return m
}
