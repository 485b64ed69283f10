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
	// nameBytesMax bounds a node's name, which is in every packet about it.
	nameBytesMax = 128

	// DefaultRejoinEvery is how often the seeds and lost nodes are tried again.
	DefaultRejoinEvery = 5 * time.Second

	// DefaultForgetAfter is how long a lost node's address is tried.
	DefaultForgetAfter = time.Hour
)

// Config configures a member. Only Name and Bind are required.
type Config struct {
	// Name is this node's name. It must be unique within the cluster.
	Name string
	// Bind is the address to listen on, host:port, for TCP and UDP. Port 0 picks one.
	Bind string
	// Advertise is the address at which others reach this node. Default: Bind. A host
	// name is looked up once, at the start.
	Advertise string
	// Seeds are addresses host:port of some members. If a host name has several
	// addresses, all are tried. This node's own address may be among them.
	Seeds []string
	// Keys encrypt and authenticate all gossip: each is 16, 24 or 32 bytes, or their
	// base64. The first encrypts, and all decrypt. If there are none, anyone who
	// reaches the port can join.
	Keys [][]byte
	// Label names the cluster. Nodes with different labels ignore each other.
	Label string
	// Meta is what this node tells the others about itself.
	Meta Meta

	// RejoinEvery and ForgetAfter default to DefaultRejoinEvery and DefaultForgetAfter.
	RejoinEvery, ForgetAfter time.Duration

	// OnNudges, OnBroadcast and OnConflict are called with what arrives. No two calls
	// of one of them overlap. The first two must not block, and may keep their argument.
	OnNudges    func(nudges []Nudge)
	OnBroadcast func(payload []byte)
	OnConflict  func(c Conflict)
	// OnQuestion returns the answer to what another member asks. Several calls may overlap, and each
	// may take some time. Default: no question is answered.
	OnQuestion func(question []byte) []byte

	// Log gets the nodes that come and go, and problems. Default: slog.Default().
	Log *slog.Logger
	// Metrics gets this package's metrics. Default: none.
	Metrics prometheus.Registerer
}

// Conflict is another node with this one's name that still answered a while after it
// was first heard.
type Conflict struct {
	Name, Mine, Other string // the name; the two addresses
	// Yield is true on exactly one of the two: the one that should give up the name.
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
	if _, err := c.keyring(); err != nil {
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
			return invalid("--gossip-advertise %q is no address that others can reach: "+
				"name this machine, like 10.0.0.5:%d", c.Advertise, port)
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

// split splits host:port.
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

// keyring returns the keys; nil: there are none.
func (c Config) keyring() (*memberlist.Keyring, error) {
	var keys [][]byte
	for _, text := range c.Keys {
		key, err := keyOf(text)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, nil
	}
	return memberlist.NewKeyring(keys, keys[0])
}

// keyOf returns the key in text, which is the key itself or its base64. Text that could
// be either counts as the key itself, unless it ends with base64's padding.
func keyOf(text []byte) ([]byte, error) {
	fits := func(n int) bool { return n == 16 || n == 24 || n == 32 }
	if fits(len(text)) && text[len(text)-1] != '=' {
		return text, nil
	}
	key, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil || !fits(len(key)) {
		return nil, invalid("--gossip-key must be the base64 of 16, 24 or 32 bytes, or several of these: " +
			"make one with: openssl rand -base64 32")
	}
	return key, nil
}

// lookup returns the addresses of a host. If host is an address, it is the only one.
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

// pick chooses the address of a host to listen on or to advertise. It prefers IPv4,
// because most networks use it.
func pick(ctx context.Context, flag, host string) (string, error) {
	ips, err := lookup(ctx, nil, host)
	if err != nil || len(ips) == 0 {
		return "", postdate.E(postdate.KindUnavailable,
			"%s: no address is known for %q: name an IP address, or mend its DNS entry (%v)", flag, host, err)
	}
	for _, ip := range ips {
		if ip.Is4() {
			return ip.String(), nil
		}
	}
	return ips[0].String(), nil
}

// tuned returns the library's configuration. With a probe every half second and a
// suspicion of four probe intervals, a crashed node is suspected after about one second
// and declared lost two seconds later: after 3.0 to 3.7 s in all, measured in clusters
// of three to five. Five nodes on two processors, which sixteen other tasks kept busy,
// raised one false alarm in a minute, which the suspect refuted. Much shorter times would
// raise many. A false alarm does little harm: nobody takes the buckets of a node that
// renews its lease.
func (c Config) tuned(keys *memberlist.Keyring) *memberlist.Config {
	m := memberlist.DefaultLANConfig()
	m.Name, m.Label, m.Keyring = c.Name, c.Label, keys
	m.ProbeInterval, m.ProbeTimeout = 500*time.Millisecond, 300*time.Millisecond
	m.SuspicionMult, m.SuspicionMaxTimeoutMult = 4, 4
	m.GossipInterval = 100 * time.Millisecond
	m.PushPullInterval = 10 * time.Second
	m.TCPTimeout = 3 * time.Second
	m.HandoffQueueDepth = 4096  // nudges also go through this queue
	m.EnableCompression = false // packets are small, and nudges many
	// A name may move to another address once its old one is gone, because a container
	// that restarts gets a new address. Any time above zero turns this on. A longer one
	// would reject the node's answer to the news that its old address is gone.
	m.DeadNodeReclaimTime = time.Millisecond
	return m
}
