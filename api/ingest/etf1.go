package ingest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
)

// A source of the form etf1+ has the records of etf1/kafka-message-scheduler: the key is the schedule's id, the
// last record of a key counts, and one without a value cancels. docs/migrate-from-kafka-message-scheduler.md
// describes them.

// Headers of such a record, spelled exactly so. If one stands twice, the first counts.
const (
	headerEpoch       = "scheduler-epoch" // seconds since 1970
	headerTargetTopic = "scheduler-target-topic"
	headerTargetKey   = "scheduler-target-key"
)

// Headers that a delivery has beside those of its record.
const (
	headerRecordTime  = "scheduler-timestamp" // of the record, in seconds since 1970
	headerRecordKey   = "scheduler-key"
	headerRecordTopic = "scheduler-topic"
)

// etf1 holds a record's headers: those that say what to do, and those that the delivery has.
type etf1 struct {
	epoch, topic, key string
	receipt           bool   // that scheduler wrote it: it delivered the schedule
	at                string // when Postdate delivered it, of a delivery that came back
	trace             traceContext
	rest              []postdate.Header
}

func readEtf1(c *Command) (e etf1) {
	own := map[string]*string{headerEpoch: &e.epoch, headerTargetTopic: &e.topic, headerTargetKey: &e.key}
	seen := map[string]bool{}
	for _, h := range c.Headers {
		switch name := strings.ToLower(h.Name); {
		case h.Name == headerRecordTime:
			e.receipt = true
		case h.Name == headerRecordKey, h.Name == headerRecordTopic:
		case own[h.Name] != nil && !seen[h.Name]:
			seen[h.Name] = true
			*own[h.Name] = h.Value
			e.rest = append(e.rest, h)
		case own[h.Name] != nil:
		case e.trace.take(name, h.Value):
		case name == HeaderExecutionTime:
			e.at = h.Value
		// who schedules what was delivered, to try again later, often keeps its headers
		case strings.HasPrefix(name, "postdate-"), name == "message-id":
		default:
			e.rest = append(e.rest, h)
		}
	}
	return e
}

// etf1ID is the schedule id of a record's key: the key, with each byte that an id cannot have, and each =, as = and
// two digits. One that is too long is hashed; no other key has an id that begins with =sha256.
func etf1ID(key string) string {
	var b strings.Builder
	for i := range len(key) {
		one := key[i : i+1]
		if one != "=" && key != "." && key != ".." && (one == "." || postdate.CheckScheduleID(one) == nil) {
			b.WriteString(one)
		} else {
			fmt.Fprintf(&b, "=%02X", key[i])
		}
	}
	if b.Len() > postdate.ScheduleIDBytesMax {
		return fmt.Sprintf("=sha256-%x", sha256.Sum256([]byte(key)))
	}
	return b.String()
}

// decideEtf1 reads a record of that scheduler. It is as pure as [Decide]. retention is how long the store keeps
// finished messages.
func decideEtf1(in *api.Intake, c *Command, now postdate.Time, retention time.Duration) Decision {
	if c.Superseded {
		return Decision{Action: Pass}
	}
	if nameless(c) {
		return refuse(invalid("it has no key: the key is the schedule's id, so give it one"))
	}
	e := readEtf1(c)
	d := Decision{Action: Upsert, Identity: Given, compacted: true}
	d.Message.Key = in.Key(etf1ID(c.Key))
	if c.Body == nil {
		if d.Action = Cancel; e.receipt {
			d.receipt = e.version(c)
		}
		return d
	}
	m, err := e.message(in, c, now, d.Message.ScheduleID)
	if err != nil {
		d.Action, d.Reason = Refuse, words(err)
		return d
	}
	if d.Message = m; m.ExecutionTime < now-postdate.Time(retention.Milliseconds()) {
		d.Action, d.Expired = Refuse, true
		d.Reason = fmt.Sprintf("it was due at %s, longer ago than --retention, so whether it was delivered is not "+
			"known any more: to send it, give it a later %s", m.ExecutionTime, headerEpoch)
	}
	return d
}

// nameless says whether a record has no key.
func nameless(c *Command) bool { return strings.TrimSpace(c.Key) == "" }

func (e *etf1) message(in *api.Intake, c *Command, now postdate.Time, id string) (m postdate.Message, err error) {
	at, err := e.time()
	if err != nil {
		return m, err
	}
	if e.at == at.String() {
		return m, invalid("this is a delivery of Postdate's with the %s that it had: if nobody sent it back, its "+
			"target is the topic from which schedules are taken", headerEpoch)
	}
	channel := c.Channel
	if e.topic != "" && !c.Pinned {
		channel = "kafka:" + e.topic
	}
	if channel == "" {
		return m, invalid("it does not say where to: give it a header %s, or name a channel after = in --ingest",
			headerTargetTopic)
	}
	m, err = in.FromParcel(&api.Parcel{
		Offer: api.Offer{ScheduleID: id, Channel: channel, Traceparent: e.trace.parent, Tracestate: e.trace.state,
			Now: now},
		ExecutionTime: at, Payload: c.Body, ContentType: c.ContentType, PartitionKey: e.key, Headers: e.headers(c),
		// Each record is a schedule of its own, even if it says what an earlier one said.
		When: fmt.Sprintf("%s %s/%d/%d", e.epoch, c.Place.Topic, c.Place.Partition, c.Place.Offset),
	})
	if err != nil {
		return m, err
	}
	m.MayRepeat = at <= c.FirstRead
	if e.key == "" {
		m.Headers = append(m.Headers, postdate.Header{Name: postdate.HeaderNoKey, Value: "true"})
	}
	m.Headers = withSource(m.Headers, c.Place)
	return m, nil
}

func (e *etf1) time() (postdate.Time, error) {
	s, err := strconv.ParseInt(e.epoch, 10, 64)
	switch {
	case e.epoch == "":
		return 0, invalid("it does not say when: give it a header %s, in seconds since 1970", headerEpoch)
	case err != nil || s < 1 || s > int64(postdate.LatestTime/1000):
		return 0, invalid("header %s is %.40q: give seconds since 1970, not milliseconds, between 1 and %d",
			headerEpoch, e.epoch, int64(postdate.LatestTime/1000))
	}
	return postdate.Time(s * 1000), nil
}

// headers are those of the delivery.
func (e *etf1) headers(c *Command) []postdate.Header {
	return append(slices.Clone(e.rest), postdate.Header{Name: headerRecordTime, Value: seconds(c.Stamp)},
		postdate.Header{Name: headerRecordKey, Value: c.Key},
		postdate.Header{Name: headerRecordTopic, Value: c.Place.Topic})
}

// seconds is a time as that scheduler writes it.
func seconds(ms int64) string { return strconv.FormatInt(time.UnixMilli(ms).Unix(), 10) }

// version tells the records of a key apart. A receipt has that of the record that was delivered. A record with a value
// may have the header, too: its sender had it delivered once, and schedules it again.
func (e *etf1) version(c *Command) []postdate.Header {
	stamp := seconds(c.Stamp)
	if e.receipt && c.Body == nil {
		for _, h := range c.Headers { // the last one is that scheduler's own
			if h.Name == headerRecordTime {
				stamp = h.Value
			}
		}
	}
	return []postdate.Header{{Name: headerEpoch, Value: e.epoch}, {Name: headerRecordTime, Value: stamp}}
}

// isOf says whether a message has all of these headers.
func isOf(m *postdate.Message, headers []postdate.Header) bool {
	return !slices.ContainsFunc(headers, func(h postdate.Header) bool { return !slices.Contains(m.Headers, h) })
}

// outdated says whether a stored message came from the command's record or from a later one. If so, the command is
// obsolete. Of a compacted topic, records of one key may be in two partitions, as after some were added: there the
// record's time decides. A receipt names its record instead.
func outdated(c *Command, m *postdate.Message) bool {
	if supersedes(m, c.Place) || !c.decision.compacted || c.decision.receipt != nil {
		return supersedes(m, c.Place)
	}
	elsewhere, at := false, int64(0)
	for _, h := range m.Headers {
		switch h.Name {
		case HeaderSource:
			elsewhere = strings.HasPrefix(h.Value, c.Place.Topic+"/") &&
				!strings.HasPrefix(h.Value, fmt.Sprintf("%s/%d/", c.Place.Topic, c.Place.Partition))
		case headerRecordTime:
			at, _ = strconv.ParseInt(h.Value, 10, 64)
		}
	}
	return elsewhere && at > time.UnixMilli(c.Stamp).Unix()
}

// Latest says which records of a partition are replaced by later ones. It is told of each, in order, before the
// first of them is carried out: one that is due would be delivered before the record that cancels it is read.
type Latest struct{ last map[[16]byte]latest }

type latest struct {
	offset  int64
	version uint64
}

// Note takes the next record into account.
func (l *Latest) Note(c *Command) {
	if nameless(c) {
		return // it is no schedule, and replaces none
	}
	if l.last == nil {
		l.last = map[[16]byte]latest{}
	}
	e := readEtf1(c)
	hash := fnv.New64a()
	for _, h := range e.version(c) {
		fmt.Fprintf(hash, "%s/", h.Value)
	}
	key, next := keySum(c.Key), latest{c.Place.Offset, hash.Sum64()}
	if c.Body == nil && e.receipt && l.last[key].version != next.version {
		return // of an earlier record: its key was scheduled again while it was delivered
	}
	l.last[key] = next
}

// Superseded says whether a later record takes the place of this one.
func (l *Latest) Superseded(c *Command) bool { return c.Place.Offset < l.last[keySum(c.Key)].offset }

// keySum stands for a key of any length.
func keySum(key string) [16]byte {
	sum := sha256.Sum256([]byte(key))
	return [16]byte(sum[:16])
}

// renew lets a finished message make way for the command's, and says whether it did.
func (t *Taker) renew(ctx context.Context, c *Command, old *postdate.Record) (ok bool) {
	switch err := t.config.Messages.Forget(ctx, old.Key, old.Version); {
	case err == nil, postdate.KindOf(err) == postdate.KindNotFound, postdate.KindOf(err) == postdate.KindConflict:
		return true
	default:
		c.again(err)
		return false
	}
}

// withdraw cancels what a bad record replaces all the same, as in that scheduler, unless it is too late. It says
// whether that is settled.
func (t *Taker) withdraw(ctx context.Context, c *Command, old *postdate.Record) (ok bool) {
	r := api.Cancel(ctx, t.config.Messages, []postdate.Key{old.Key}, t.config.Now())[0]
	switch kind := postdate.KindOf(r.Err); {
	case r.Err == nil, kind == postdate.KindTooLate, kind == postdate.KindNotFound:
		return true
	}
	c.again(r.Err)
	return false
}
