package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
)

// Names of record headers for what other brokers have fields for.
const (
	headerMessageID   = "message-id"
	headerContentType = "content-type"
)

// RecordKey returns the key of a message's record; has is false if it has none.
func RecordKey(m *postdate.Message) (key string, has bool) {
	if m.PartitionKey != "" {
		return m.PartitionKey, true
	}
	return m.ClientID(), !slices.ContainsFunc(m.Headers, isNoKey)
}

// record makes the Kafka record of a delivery. A payload is never null: in a compacted topic,
// null deletes the key.
func record(d *postdate.Delivery) kmsg.Record {
	m := d.Message
	r := kmsg.Record{Value: m.Payload, Headers: make([]kmsg.Header, 0, len(m.Headers)+8)}
	if key, has := RecordKey(m); has {
		r.Key = []byte(key)
	}
	if r.Value == nil {
		r.Value = []byte{}
	}
	own := func(name, value string) {
		r.Headers = append(r.Headers, kmsg.Header{Key: name, Value: []byte(value)})
	}
	own(headerMessageID, m.ScheduleID)
	own(headerContentType, m.ContentType)
	own(publisher.HeaderScheduleID, m.SeriesID())
	own(publisher.HeaderExecutionTime, m.ExecutionTime.String())
	own(publisher.HeaderAttempt, strconv.Itoa(d.Attempt))
	if d.PossibleDuplicate {
		own(publisher.HeaderPossibleDuplicate, "true")
	}
	for name, value := range publisher.TraceHeaders(m) {
		own(name, value)
	}
	for h := range publisher.ClientHeaders(m) {
		if !strings.EqualFold(h.Name, headerMessageID) && !strings.EqualFold(h.Name, headerContentType) {
			own(h.Name, h.Value)
		}
	}
	return r
}

func isNoKey(h postdate.Header) bool { return h.Name == postdate.HeaderNoKey }

// Sizes in the record format, in bytes; for parts of variable length, the largest.
const (
	batchHead = 61
	// length, attributes, timestamp, offset, lengths of key and value, count of headers
	recordHead = 5 + 1 + 1 + 5 + 5 + 5 + 5
	headerHead = 5 + 5
)

// sizeOf returns the most bytes that a record takes in a batch.
func sizeOf(r *kmsg.Record) int {
	n := recordHead + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += headerHead + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

// producer is the identity by which a broker recognises a batch that it has already accepted.
type producer struct {
	id    int64
	epoch int16
}

// transactional is the attribute of a batch that is part of a transaction.
const transactional = 1 << 4

// encode makes a record batch. All records carry the time at which it is made: with their
// execution times, a topic's retention could delete late messages immediately.
func encode(records []*kmsg.Record, by producer, sequence int32, attributes int16, at int64) []byte {
	var body []byte
	for i, r := range records {
		r.OffsetDelta, r.Length = int32(i), 0
		start := len(body)
		body = r.AppendTo(body)
		r.Length = int32(len(body) - start - 1) // without the length itself, which took one byte: it was 0
		body = r.AppendTo(body[:start])
	}
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: attributes,
		LastOffsetDelta: int32(len(records) - 1), FirstTimestamp: at, MaxTimestamp: at,
		ProducerID: by.id, ProducerEpoch: by.epoch, FirstSequence: sequence,
		NumRecords: int32(len(records)), Records: body,
		Length: int32(batchHead - 12 + len(body)),
	}
	b := batch.AppendTo(make([]byte, 0, batchHead+len(body)))
	const crcAt, crcFrom = 17, 21
	binary.BigEndian.PutUint32(b[crcAt:], crc32.Checksum(b[crcFrom:], castagnoli))
	return b
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
