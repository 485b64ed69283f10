package membership

import (
	"context"
	"log"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/postdate/postdate"
)

const (
	// joinTimeout bounds one round of looking up addresses and trying them.
	joinTimeout = 10 * time.Second

	// lookupTimeout bounds the lookups of a round.
	lookupTimeout = 5 * time.Second

	// leaveTimeout bounds a Leave: an orderly stop has other work to do as well.
	leaveTimeout = 3 * time.Second
)

// Membership is this node's part in the gossip.
type Membership struct {
	config    Config
	parts     parts
	log       *slog.Logger
	metrics   *metrics
	meta      []byte
	transport *transport
	list      *memberlist.Memberlist
	address   string // at which others reach it

	changed chan struct{}
	clashes chan clash
	toSend  chan struct{}
	stop    chan struct{}
	loops   sync.WaitGroup

	mu       sync.Mutex
	roster   roster
	leaving  map[string]bool // nodes that announced that they leave, and are still members
	problems map[string]problem
	outbox   map[string]map[int]postdate.Time
	asked    map[uint64]*openQuestion // by the id of the question
	silent   map[string]bool          // who has not answered since a question's deadline passed
	waiting  map[string][]waiting     // by the member that asks, while it is answered

	ending  sync.Mutex // held while it leaves or shuts down
	left    atomic.Bool
	stopped bool
}

// Start listens, tries the seeds once, and keeps trying them in the background. It is no
// error if no seed answers: some node has to be the first. It fails if the config is bad,
// the port is taken, or another node of the same name answers (KindConflict).
func Start(ctx context.Context, c Config) (*Membership, error) { return startWith(ctx, c, parts{}) }

// parts are what tests replace in a member. Both may be nil.
type parts struct {
	tune     func(*memberlist.Config) // changes the library's settings
	resolver *net.Resolver            // for the names of seeds
}

func startWith(ctx context.Context, c Config, p parts) (*Membership, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	meta, err := c.Meta.encode()
	if err != nil {
		return nil, err
	}
	m := &Membership{
		config: c, metrics: newMetrics(c.Metrics), parts: p, log: c.Log, meta: meta,
		changed: make(chan struct{}, 1), clashes: make(chan clash, 16), toSend: make(chan struct{}, 1),
		stop:   make(chan struct{}),
		roster: roster{}, leaving: map[string]bool{}, problems: map[string]problem{},
		outbox: map[string]map[int]postdate.Time{}, asked: map[uint64]*openQuestion{}, silent: map[string]bool{},
		waiting: map[string][]waiting{},
	}
	if err := m.open(ctx); err != nil {
		return nil, err
	}
	m.join(ctx, false, true)
	if err := m.refuseTwin(ctx); err != nil {
		m.Shutdown()
		return nil, err
	}
	m.loops.Go(m.sendNudges)
	m.loops.Go(m.rejoin)
	return m, nil
}

// open listens and starts the library, which knows no other node yet.
func (m *Membership) open(ctx context.Context) error {
	keys, err := m.config.keyring()
	if err != nil {
		return err
	}
	tuned := m.config.tuned(keys)
	if m.parts.tune != nil {
		m.parts.tune(tuned)
	}
	tuned.Logger = log.New(logged{m}, "", 0)
	if m.transport, err = listen(ctx, m.config.Bind, tuned.Logger); err != nil {
		return err
	}
	tuned.Transport = m.transport
	tuned.BindPort = m.transport.GetAutoBindPort()
	if err := m.advertise(ctx, tuned); err != nil {
		m.transport.Shutdown()
		return err
	}
	hooks := events{m}
	tuned.Delegate, tuned.Events, tuned.Conflict = hooks, hooks, hooks
	if m.list, err = memberlist.Create(tuned); err != nil {
		m.transport.Shutdown()
		return postdate.E(postdate.KindUnavailable,
			"--gossip %s: %w (name the address that others reach with --gossip-advertise)", m.config.Bind, err)
	}
	if keys == nil && !m.transport.loopback() {
		m.log.Warn("gossip: whoever reaches this port can join the cluster: set --gossip-key", "address", m.address)
	}
	return nil
}

// advertise finds the address at which others reach this node.
func (m *Membership) advertise(ctx context.Context, tuned *memberlist.Config) error {
	if m.config.Advertise != "" {
		host, port, err := split("--gossip-advertise", m.config.Advertise)
		if err != nil {
			return err
		}
		if tuned.AdvertiseAddr, err = pick(ctx, "--gossip-advertise", host); err != nil {
			return err
		}
		if tuned.AdvertisePort = port; port == 0 {
			tuned.AdvertisePort = tuned.BindPort
		}
	}
	ip, port, err := m.transport.FinalAdvertiseAddr(tuned.AdvertiseAddr, tuned.AdvertisePort)
	if err != nil || ip.IsUnspecified() {
		return invalid("--gossip %s listens everywhere, and which address others reach is unclear: "+
			"name it with --gossip-advertise", m.config.Bind)
	}
	m.address = net.JoinHostPort(ip.String(), strconv.Itoa(port))
	return nil
}

// Address returns the address at which others reach this node's gossip, host:port.
func (m *Membership) Address() string { return m.address }

// Leave announces that this node leaves, so that the others know immediately instead of
// having to detect it. It gives up after a few seconds, or at ctx's deadline. Until
// Shutdown this node still hears from the others, and can tell them what it hands over.
func (m *Membership) Leave(ctx context.Context) error {
	m.ending.Lock()
	defer m.ending.Unlock()
	if m.stopped || !m.left.CompareAndSwap(false, true) {
		return nil
	}
	timeout := leaveTimeout
	if until, ok := ctx.Deadline(); ok {
		timeout = min(timeout, max(time.Until(until), time.Millisecond))
	}
	m.mu.Lock()
	m.leaving[m.config.Name] = true
	m.mu.Unlock()
	m.toAll(append([]byte{packetLeaving}, m.config.Name...))
	if err := m.list.Leave(timeout); err != nil {
		return postdate.E(postdate.KindUnavailable,
			"the other nodes may not have heard that this one leaves, and will miss it first: %w", err)
	}
	return nil
}

// Shutdown stops immediately. Without a Leave before, it looks like a crash to the
// others. It may be called twice.
func (m *Membership) Shutdown() {
	m.ending.Lock()
	defer m.ending.Unlock()
	if m.stopped {
		return
	}
	m.stopped = true
	close(m.stop)
	if err := m.list.Shutdown(); err != nil {
		m.log.Debug("gossip: shut down", "error", err)
	}
	m.loops.Wait()
}
