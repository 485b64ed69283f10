package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// ChannelSettings are the settings of a channel, which hold for all nodes.
type ChannelSettings struct {
	Channel      string  `json:"channel"`
	Paused       bool    `json:"paused"`
	MaxPerSecond float64 `json:"maxPerSecond"` // messages per second and node; 0: no limit
	MaxInFlight  int     `json:"maxInFlight"`  // at the broker at the same time, per node; 0: no limit of its own
	// FailureChannel gets a message with the reason for each that cannot be delivered and has none of its own; "":
	// nothing does.
	FailureChannel string `json:"failureChannel"`
}

// ChannelList has the channels of a tenant, in the whole cluster.
type ChannelList struct {
	Channels []Channel `json:"channels"` // by name
	Missing  []string  `json:"missing"`  // nodes that did not answer: what only they know is missing
}

// Channel is a channel, in the whole cluster.
type Channel struct {
	ChannelSettings
	State    string `json:"state"`    // up, down (on some node) or paused
	InHand   int    `json:"inHand"`   // messages in the nodes' memory
	InFlight int    `json:"inFlight"` // of these, at the broker
	Parked   bool   `json:"parked"`   // some of its messages wait in the store until it is up again

	LastError     string    `json:"lastError"`     // the broker's latest error; "": none
	LastErrorAt   time.Time `json:"lastErrorAt"`   // when that was
	LastErrorNode string    `json:"lastErrorNode"` // the node that got it

	// DeliveredPerSecond is how many messages brokers confirmed in a second, over the last minute; nil: not known.
	DeliveredPerSecond *float64 `json:"deliveredPerSecond"`
	Pending            *int64   `json:"pending"` // messages that are stored and not settled; nil: not known
	Due                *int64   `json:"due"`     // of these, those whose time has come; nil: as Pending
	Exact              bool     `json:"exact"`   // Pending and Due are no estimates
}

// ChannelChange is what ChangeChannel changes. Nil fields leave a setting as it is.
type ChannelChange struct {
	Channel      string   `json:"channel"`
	Paused       *bool    `json:"paused,omitempty"`
	MaxPerSecond *float64 `json:"maxPerSecond,omitempty"`
	MaxInFlight  *int     `json:"maxInFlight,omitempty"`

	FailureChannel *string `json:"-"` // "": none from now on
}

// Channels lists the channels of which a node of the cluster knows something, of which something is set, or for which
// messages are pending. It goes on from page to page.
func (c *Client) Channels(ctx context.Context) (all ChannelList, err error) {
	type page struct {
		ChannelList
		NextCursor string `json:"nextCursor"`
	}
	for path := "/v1/channels"; ; {
		p, err := get[page](ctx, c, path)
		if err != nil {
			return ChannelList{}, err
		}
		all.Channels = append(all.Channels, p.Channels...)
		all.Missing = append(all.Missing, p.Missing...)
		if p.NextCursor == "" {
			slices.Sort(all.Missing)
			all.Missing = slices.Compact(all.Missing)
			return all, nil
		}
		path = "/v1/channels?cursor=" + url.QueryEscape(p.NextCursor)
	}
}

// ChangeChannel pauses, resumes or limits a channel, or sets its failure channel, on all nodes, and
// returns the new settings.
func (c *Client) ChangeChannel(ctx context.Context, change ChannelChange) (set ChannelSettings, err error) {
	body, err := json.Marshal(struct {
		ChannelChange
		FailureChannel *removable `json:"failureChannel,omitempty"`
	}{change, (*removable)(change.FailureChannel)})
	if err != nil {
		return set, err
	}
	_, err = c.do(ctx, Call{Method: http.MethodPatch, Path: "/v1/channels", Body: body}, &set)
	return set, err
}

// Pause stops publishing to a channel, on all nodes. Its messages wait.
func (c *Client) Pause(ctx context.Context, channel string) error {
	return c.setPaused(ctx, channel, true)
}

// Resume resumes publishing to a paused channel.
func (c *Client) Resume(ctx context.Context, channel string) error {
	return c.setPaused(ctx, channel, false)
}

func (c *Client) setPaused(ctx context.Context, channel string, paused bool) error {
	_, err := c.ChangeChannel(ctx, ChannelChange{Channel: channel, Paused: &paused})
	return err
}

// Cluster is a cluster as one node sees it.
type Cluster struct {
	Node    string   `json:"node"` // the one that answers
	Members []Member `json:"members"`
	Buckets []Bucket `json:"buckets"`
}

// Member is a node of a cluster.
type Member struct {
	Node    string `json:"node"`
	Address string `json:"address"`
	State   string `json:"state"`

	ClockOffsetMs *int64 `json:"clockOffsetMs"` // how far its clock is ahead of the store's; nil: not known
	Lease         *Lease `json:"lease"`         // nil: not known, or there is none
}

// Lease shows to other nodes that a node is alive.
type Lease struct {
	ID      string `json:"id"`      // of one run of the node
	LastsMs int64  `json:"lastsMs"` // from a renewal on
	LeftMs  int64  `json:"leftMs"`  // until it ends; 0: it has ended
}

// Bucket says who owns a bucket and how far its messages are settled.
type Bucket struct {
	Bucket     int       `json:"bucket"`
	Owner      string    `json:"owner"`      // "": nobody
	Token      uint64    `json:"token"`      // grows by one at every change of owner
	Checkpoint time.Time `json:"checkpoint"` // everything due up to here is settled
	Claimed    time.Time `json:"claimed"`    // the owner may publish up to here
	// LagMs counts since its earliest unsettled message became due; for another node's bucket,
	// since Checkpoint.
	LagMs int64 `json:"lag"`
}

// Cluster returns the cluster as one node sees it.
func (c *Client) Cluster(ctx context.Context) (Cluster, error) {
	return get[Cluster](ctx, c, "/v1/cluster")
}

// Stats are what a cluster did in the last ten minutes.
type Stats struct {
	At      time.Time `json:"at"`
	Tenant  string    `json:"tenant"`  // whose figures these are; "": those of all
	Nodes   []string  `json:"nodes"`   // whose figures are in it
	Missing []string  `json:"missing"` // nodes that did not answer: what they counted is missing
	// OwnSeries is whether the tenant has metric series of its own on every node. If not, what was counted in a series
	// that it shares with others is missing. It is always true in the figures of all tenants.
	OwnSeries bool `json:"ownSeries"`

	// Only in the figures of all tenants.
	OverdueMs    int64 `json:"overdueMs"`    // for how long the earliest due message that is not settled has been due
	InHand       int   `json:"inHand"`       // messages in the nodes' memory
	ChannelsDown int   `json:"channelsDown"` // not paused; by the node that finds most of them; not fewer than Down names
	// Down has the first ten of the channels that are down, by tenant and name. Only an administrator gets it.
	Down []DownChannel `json:"down"`

	Pending *StatsPending `json:"pending"` // of all tenants, or of the one; nil: not known

	Total      Figures   `json:"total"` // since each node started
	LastMinute StatsSlot `json:"lastMinute"`
	PerSecond  Rates     `json:"perSecond"` // what is in LastMinute, for each of its seconds
	// Slots are the last ten minutes in slots of ten seconds, the oldest first. The last one has not ended yet.
	Slots []StatsSlot `json:"slots"`
}

// DownChannel is a channel that takes no messages.
type DownChannel struct {
	Tenant  string `json:"tenant"`
	Channel string `json:"channel"`
	Reason  string `json:"reason"` // why it is down
}

// StatsPending is what is stored and still to be delivered, in the whole cluster.
type StatsPending struct {
	Messages int64 `json:"messages"`
	Bytes    int64 `json:"bytes"` // the size of their payloads
}

// Figures count what became of messages.
type Figures struct {
	Scheduled int64 `json:"scheduled"` // a series counts once
	Delivered int64 `json:"delivered"` // each occurrence of a series counts
	Failed    int64 `json:"failed"`    // ended as DELIVERY_FAILED
	Cancelled int64 `json:"cancelled"`
}

// Rates are [Figures] for each second.
type Rates struct {
	Scheduled float64 `json:"scheduled"`
	Delivered float64 `json:"delivered"`
	Failed    float64 `json:"failed"`
	Cancelled float64 `json:"cancelled"`
}

// StatsSlot is what happened in a slot of time.
type StatsSlot struct {
	From    time.Time `json:"from"`
	Seconds float64   `json:"seconds"` // for how long nodes counted in it
	Figures
	LatenessMs *Lateness `json:"latenessMs"` // nil: nothing was delivered
}

// Lateness is how long after their execution times messages were confirmed by the broker, in milliseconds.
type Lateness struct {
	P50 float64 `json:"p50"` // the median: half of the messages were at most so late
	P99 float64 `json:"p99"` // the 99th percentile: 99 of 100 were
}

// Stats returns what the cluster did in the last ten minutes.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	return get[Stats](ctx, c, "/v1/stats")
}

// Health asks once whether the process is alive.
func (c *Client) Health(ctx context.Context) error { return c.once(ctx, "/healthz") }

// Ready asks once whether the node can serve. If not, the error is a problem of type NotReady.
func (c *Client) Ready(ctx context.Context) error { return c.once(ctx, "/readyz") }

func (c *Client) once(ctx context.Context, path string) error {
	_, err := c.request(ctx, c.Server(), Call{Method: http.MethodGet, Path: path})
	return err
}

// Metrics reads the node's metrics, in the text format of Prometheus.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	a, err := c.do(ctx, Call{Method: http.MethodGet, Path: "/metrics"}, nil)
	return a.Body, err
}

// OpenAPI reads the API's OpenAPI document.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c, "/openapi.json")
}
