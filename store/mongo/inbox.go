package mongo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// An inbox is a chain of segments: documents that hold some hundreds of messages each.
// Appending pushes to the last one, in one round trip and without a counter: the writes to a
// document are ordered and atomic, so readers see no message before one that was appended
// earlier. The next segment begins where a full one ends, and nothing more is pushed to a full
// one.
const (
	segmentMessages = 1_000
	segmentBytes    = 1 << 20 // a segment is full from here on
	partBytes       = 8 << 20 // and never grows by more than this in one write: MongoDB limits documents to 16 MiB
)

// segment is a part of an inbox in the collection inboxes.
type segment struct {
	ID       string         `bson:"_id"`    // tenant, inbox and number, so that they sort
	Bucket   int            `bson:"bucket"` // of the inbox: its owner expires the inbox
	Number   int64          `bson:"number"` // of the segment
	Start    int64          `bson:"start"`  // how many messages ever came before it
	Base     int64          `bson:"base"`   // and how many before the first one that is kept
	Count    int64          `bson:"count"`  // how many ever came to it
	Bytes    int64          `bson:"bytes"`
	Oldest   *postdate.Time `bson:"oldest,omitempty"` // when the first one that is kept was delivered
	Messages []letter       `bson:"messages"`
}

// letter is a message in a segment.
type letter struct {
	ScheduleID        string        `bson:"id"`
	ExecutionTime     postdate.Time `bson:"executionTime"`
	DeliveredAt       postdate.Time `bson:"at"`
	Attempt           int           `bson:"attempt"`
	PossibleDuplicate bool          `bson:"possibleDuplicate,omitempty"`
	ContentType       string        `bson:"contentType,omitempty"`
	Encoding          int           `bson:"encoding,omitempty"`
	Payload           []byte        `bson:"payload,omitempty"`
	Headers           []header      `bson:"headers,omitempty"`
}

func letterOf(m *store.InboxMessage) letter {
	l := letter{
		ScheduleID: m.ScheduleID, ExecutionTime: m.ExecutionTime, DeliveredAt: m.DeliveredAt, Attempt: m.Attempt,
		PossibleDuplicate: m.PossibleDuplicate, ContentType: m.ContentType, Encoding: int(m.Encoding),
		Payload: m.Payload,
	}
	for _, h := range m.Headers {
		l.Headers = append(l.Headers, header(h))
	}
	return l
}

func (l *letter) message(tenant, inbox string) store.InboxMessage {
	m := store.InboxMessage{
		Tenant: tenant, Inbox: inbox, ScheduleID: l.ScheduleID, ExecutionTime: l.ExecutionTime,
		DeliveredAt: l.DeliveredAt, Attempt: l.Attempt, PossibleDuplicate: l.PossibleDuplicate,
		ContentType: l.ContentType, Encoding: postdate.Encoding(l.Encoding), Payload: l.Payload,
	}
	for _, h := range l.Headers {
		m.Headers = append(m.Headers, postdate.Header(h))
	}
	return m
}

// bytes estimates what the letter takes in its document.
func (l *letter) bytes() int64 {
	n := 150 + len(l.ScheduleID) + len(l.ContentType) + len(l.Payload)
	for _, h := range l.Headers {
		n += 30 + len(h.Name) + len(h.Value)
	}
	return int64(n)
}

// end is how many messages ever came, up to the segment's last one.
func (g *segment) end() int64 { return g.Start + g.Count }

func (g *segment) full() bool {
	return g.Count >= segmentMessages || g.Bytes >= segmentBytes
}

// inboxID is the prefix of an inbox's segments.
func inboxID(tenant, name string) string { return tenant + "\x00" + name + "\x00" }

// inboxBucket is the bucket that an inbox belongs to.
func (s *Store) inboxBucket(inbox string) int {
	tenant, name, _ := strings.Cut(strings.TrimSuffix(inbox, "\x00"), "\x00")
	return bucket.Of(tenant, name, s.c.Buckets)
}

func segmentID(inbox string, number int64) string { return fmt.Sprintf("%s%016x", inbox, number) }

// segmentsFrom selects an inbox's segments from the given number on.
func segmentsFrom(inbox string, number int64) bson.D {
	return doc("_id", doc("$gte", segmentID(inbox, number), "$lt", inbox+"g")) // after every hexadecimal digit
}

// ReadInbox implements store.Inbox.
func (s *Store) ReadInbox(ctx context.Context, tenant, name, after string,
	limit int) (messages []store.InboxMessage, next string, err error) {
	from, err := s.readCursor(after)
	if err != nil {
		return nil, "", err
	}
	var at place
	err = s.reading(ctx, func(ctx context.Context) (err error) {
		messages, at, err = s.readSegments(ctx, tenant, name, from, limit)
		return err
	})
	if err != nil {
		if postdate.KindOf(err) != postdate.KindInvalid {
			err = readError("reading an inbox", err)
		}
		return nil, "", err
	}
	return messages, s.cursor(at), nil
}

// place is where a reader stands: before the message with this number, which is in this segment
// or a later one.
type place struct{ segment, number int64 }

func (s *Store) readSegments(ctx context.Context, tenant, name string, at place,
	limit int) ([]store.InboxMessage, place, error) {
	inbox := inboxID(tenant, name)
	offset := doc("$max", bson.A{0, doc("$subtract", bson.A{at.number, "$base"})})
	cursor, err := s.inboxes.Find(ctx, segmentsFrom(inbox, at.segment),
		options.Find().SetHint(indexID).SetSort(doc("_id", 1)).SetBatchSize(2).
			SetProjection(doc("number", 1, "start", 1, "base", 1, "count", 1,
				"messages", doc("$slice", bson.A{"$messages", offset, limit}))))
	if err != nil {
		return nil, at, err
	}
	defer cursor.Close(ctx)
	var messages []store.InboxMessage
	end, bytes := int64(-1), 0
	for len(messages) < limit && bytes < store.PageBytesMax && cursor.Next(ctx) {
		var g segment
		if err := cursor.Decode(&g); err != nil {
			return nil, at, err
		}
		if end >= 0 && g.Start != end {
			break // the one before was not full yet when it was read
		}
		if at.number > g.end() && end < 0 {
			return nil, at, store.ErrCursorAhead(s.cursor(at))
		}
		end = g.end()
		at = place{g.Number, max(at.number, g.Base)}
		for i := range g.Messages[:min(len(g.Messages), limit-len(messages))] {
			if bytes >= store.PageBytesMax {
				break
			}
			messages = append(messages, g.Messages[i].message(tenant, name))
			bytes += messages[len(messages)-1].Bytes()
			messages[len(messages)-1].Place = store.InboxPlace{Segment: at.segment, Number: at.number}
			at.number++
		}
	}
	if end < 0 && at.number > 0 && cursor.Err() == nil {
		return nil, at, store.ErrCursorAhead(s.cursor(at))
	}
	return messages, at, cursor.Err()
}

// ReadPlaces implements store.Inbox. It reads each segment from the first to the last of its places.
func (s *Store) ReadPlaces(ctx context.Context, tenant, name string,
	places []store.InboxPlace) (messages []store.InboxMessage, left []store.InboxPlace, err error) {
	wanted := map[int64][]int64{}
	var segments []int64 // in the order of places
	for _, p := range places {
		if wanted[p.Segment] == nil {
			segments = append(segments, p.Segment)
		}
		wanted[p.Segment] = append(wanted[p.Segment], p.Number)
	}
	inbox, bytes := inboxID(tenant, name), 0
	for _, number := range segments {
		numbers := wanted[number]
		if bytes >= store.PageBytesMax {
			left = appendPlaces(left, number, numbers)
			continue
		}
		var g segment
		err := s.reading(ctx, func(ctx context.Context) error {
			first, last := slices.Min(numbers), slices.Max(numbers)
			offset := doc("$max", bson.A{0, doc("$subtract", bson.A{first, "$base"})})
			some := doc("base", 1, "messages", doc("$slice", bson.A{"$messages", offset, last - first + 1}))
			return s.inboxes.FindOne(ctx, doc("_id", segmentID(inbox, number)),
				options.FindOne().SetHint(indexID).SetProjection(some)).Decode(&g)
		})
		if err == driver.ErrNoDocuments {
			continue
		}
		if err != nil {
			return nil, nil, readError("reading an inbox", err)
		}
		begin := max(slices.Min(numbers), g.Base)
		for looked, n := range numbers {
			if bytes >= store.PageBytesMax {
				left = appendPlaces(left, number, numbers[looked:])
				break
			}
			if i := n - begin; i >= 0 && i < int64(len(g.Messages)) {
				m := g.Messages[i].message(tenant, name)
				m.Place = store.InboxPlace{Segment: number, Number: n}
				messages = append(messages, m)
				bytes += m.Bytes()
			}
		}
	}
	return messages, left, nil
}

func appendPlaces(places []store.InboxPlace, segment int64, numbers []int64) []store.InboxPlace {
	for _, n := range numbers {
		places = append(places, store.InboxPlace{Segment: segment, Number: n})
	}
	return places
}

// A cursor is the store's name and a place: without the name, a cursor of another store would
// silently skip messages.
func (s *Store) cursor(at place) string {
	return fmt.Sprintf("%08x-%d-%d", s.birth, at.segment, at.number)
}

func (s *Store) readCursor(cursor string) (at place, err error) {
	if cursor == "" {
		return at, nil
	}
	var birth uint32
	n, err := fmt.Sscanf(cursor, "%08x-%d-%d", &birth, &at.segment, &at.number)
	switch {
	case n == 3 && err == nil && birth != s.birth:
		return at, store.ErrCursorForeign(cursor)
	case n != 3 || err != nil || at.segment < 0 || at.number < 0 || s.cursor(at) != cursor:
		return at, store.ErrCursorInvalid(cursor)
	}
	return at, nil
}

// lastSegment reads an inbox's last segment, without its messages.
func (s *Store) lastSegment(ctx context.Context, inbox string) (*segment, error) {
	var g segment
	err := s.once(ctx, func(ctx context.Context) error {
		return s.inboxes.FindOne(ctx, segmentsFrom(inbox, 0),
			options.FindOne().SetHint(indexID).SetSort(doc("_id", -1)).SetProjection(doc("messages", 0))).Decode(&g)
	})
	if err == driver.ErrNoDocuments {
		return nil, nil
	}
	return &g, err
}
