package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// A cursor is base64url of its version, a tag, and the position after which the list
// goes on. The tag also covers the query, so that a cursor from another query is
// refused: it could silently leave messages out.
const (
	cursorVersion  = 1
	cursorTagBytes = 8
	cursorBytesMax = 4_096 // it may hold a channel
)

// cursorOf makes the cursor of a position in the list that q selects.
func cursorOf(q *store.ListQuery, at *store.ListPosition) string {
	position := binary.AppendUvarint(nil, uint64(at.ExecutionTime))
	position = binary.AppendUvarint(position, uint64(at.Bucket))
	position = append(position, at.ScheduleID...)
	return sealed(cursorTag(q, position), position)
}

// sealed is a cursor of a tag and a position.
func sealed(tag, position []byte) string {
	b := append([]byte{cursorVersion}, tag...)
	return base64.RawURLEncoding.EncodeToString(append(b, position...))
}

// unsealed returns the position in a cursor, if that has the tag of its position.
func unsealed(cursor string, tagOf func(position []byte) []byte) (position []byte, ok bool) {
	if len(cursor) > cursorBytesMax {
		return nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) < 1+cursorTagBytes || b[0] != cursorVersion {
		return nil, false
	}
	position = b[1+cursorTagBytes:]
	return position, bytes.Equal(b[1:1+cursorTagBytes], tagOf(position))
}

// parseCursor reads a cursor that cursorOf made for the same query.
func parseCursor(q *store.ListQuery, s string, buckets int) (*store.ListPosition, error) {
	bad := invalid("the cursor is damaged, or comes from a list with other filters: begin without one")
	position, ok := unsealed(s, func(position []byte) []byte { return cursorTag(q, position) })
	if !ok {
		return nil, bad
	}
	at, n := binary.Uvarint(position)
	if n <= 0 || at > uint64(postdate.Far) {
		return nil, bad
	}
	position = position[n:]
	bucket, n := binary.Uvarint(position)
	if n <= 0 || bucket >= uint64(buckets) {
		return nil, bad
	}
	id := string(position[n:]) // empty: before all messages there
	if id != "" && postdate.CheckMessageID(id) != nil {
		return nil, bad
	}
	return &store.ListPosition{ExecutionTime: postdate.Time(at), Bucket: int(bucket), ScheduleID: id}, nil
}

// channelCursor makes the cursor of the place after a channel in a tenant's list of them.
func channelCursor(tenant, channel string) string {
	return sealed(channelTag(tenant, []byte(channel)), []byte(channel))
}

// parseChannelCursor reads a cursor that channelCursor made for the same tenant.
func parseChannelCursor(tenant, s string) (channel string, err error) {
	position, ok := unsealed(s, func(position []byte) []byte { return channelTag(tenant, position) })
	if !ok {
		return "", invalid("the cursor is damaged, or comes from another list: begin without one")
	}
	return string(position), nil
}

func channelTag(tenant string, channel []byte) []byte {
	sum := sha256.Sum256(append([]byte("channels\x00"+tenant+"\x00"), channel...))
	return sum[:cursorTagBytes]
}

func cursorTag(q *store.ListQuery, position []byte) []byte {
	b := []byte{cursorVersion, byte(q.Status)}
	texts := []string{q.Tenant, string(q.Channel)}
	switch { // earlier versions gave out cursors without
	case q.Recurring != 0:
		texts = append(texts, q.IDPrefix, q.Label, string(rune(q.Recurring)))
	case q.Label != "":
		texts = append(texts, q.IDPrefix, q.Label)
	case q.IDPrefix != "":
		texts = append(texts, q.IDPrefix)
	}
	for _, text := range texts {
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	b = binary.AppendVarint(b, int64(q.From))
	b = binary.AppendVarint(b, int64(q.To))
	sum := sha256.Sum256(append(b, position...))
	return sum[:cursorTagBytes]
}
