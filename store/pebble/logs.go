package pebble

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	lsm "github.com/cockroachdb/pebble/v2"
)

// Pebble takes the first broken chunk of its logs for the torn end of a write that a power loss
// cut short, drops what follows, and deletes the tables that it then does not know. In the last
// block of the write-ahead log, and anywhere in the manifest, a flipped bit looks the same to
// it. So the logs are read before Pebble opens them, and a store is refused if a whole chunk
// follows a broken one and shows that the broken one had been on disk. Nothing follows the very
// last record, which stays Pebble's to judge; so does, in the last block of a log, a chunk
// whose length is lost or says that the file was cut off in it.
//
// The logs also hold what clients send, which may look like a chunk. So a chunk counts only
// where Pebble wrote one: after another, or at a block's border. After a broken one that is
// where its header says, and a power loss may have left only a part of the header. But a log's
// file is never reused (pacedFS.ReuseForWrite): what is lost of it reads as zeros, and so a
// header shows whether it is complete. In a manifest clients write nothing but names. Every
// byte of a name is at least a space, and every chunk's kind is less. So no chunk can lie
// within a name, and one that begins in a name continues in what only Pebble knows.

// checkLogs looks for damage in the manifest and the write-ahead logs. It holds the directory's
// lock meanwhile: a log that is being written looks broken.
func checkLogs(c settings) error {
	lock, err := lsm.LockDirectory(c.Dir, c.FS)
	if err != nil {
		return openError(c.Dir, err)
	}
	defer lock.Close()
	desc, err := lsm.Peek(c.Dir, c.FS)
	if err != nil {
		return openError(c.Dir, err)
	}
	if !desc.Exists {
		return nil
	}
	names, err := c.FS.List(c.Dir)
	if err != nil {
		return openError(c.Dir, err)
	}
	var content bytes.Buffer // of one file after the other
	if err := checkLog(c, filepath.Base(desc.ManifestFilename), 0, &content); err != nil {
		return err
	}
	for _, name := range names {
		number, isLog := strings.CutSuffix(name, ".log")
		if n, err := strconv.ParseUint(number, 10, 32); isLog && err == nil {
			if err := checkLog(c, name, uint32(n), &content); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkLog(c settings, name string, number uint32, content *bytes.Buffer) error {
	f, err := c.FS.Open(c.FS.PathJoin(c.Dir, name))
	if err != nil {
		return openError(c.Dir, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return openError(c.Dir, err)
	}
	content.Reset()
	content.Grow(int(info.Size()) + bytes.MinRead)
	if _, err := content.ReadFrom(f); err != nil {
		return openError(c.Dir, err)
	}
	if at, broken := brokenChunk(content.Bytes(), number); broken {
		return openError(c.Dir, fmt.Errorf("%w: %s is broken at byte %d, and goes on behind it",
			lsm.ErrCorruption, name, at))
	}
	return nil
}

const (
	blockBytes  = 32 << 10 // no chunk crosses a block's border
	sectorBytes = 512      // the least that a disk writes or loses as a unit
	chunkHeader = 7        // checksum, length, kind
	syncHeader  = 19       // the same, the log's number, and up to where the log was on disk when the chunk was made
)

// The first of the four kinds of chunks in a manifest and in a log: for a whole record, and for
// a record's first, middle and last part.
const (
	kindManifest = 1
	kindLog      = 9
)

// logReader reads a log, or a manifest if number is 0.
type logReader struct {
	b      []byte
	number uint32
	header int
	kind   byte // the first of its kinds
}

func newLogReader(b []byte, number uint32) logReader {
	if number == 0 {
		return logReader{b, number, chunkHeader, kindManifest}
	}
	return logReader{b, number, syncHeader, kindLog}
}

// brokenChunk finds the first chunk that is broken although a later one shows that it had been
// on disk. number is the log's, and 0 for a manifest.
func brokenChunk(b []byte, number uint32) (at int, broken bool) {
	r := newLogReader(b, number)
	for i := 0; i < len(b); {
		end, synced, whole := r.chunk(i)
		rest := b[i:min(len(b), borderBehind(i))]
		switch {
		case whole && broken && synced > uint64(at):
			return at, true
		case whole:
			i = end
		case r.trailer(rest):
			return 0, false
		case len(rest) < syncHeader && zeros(rest): // too little room for a chunk
			i = borderBehind(i)
		case !broken:
			at, broken = i, true
			i = r.behindFirst(i)
		default:
			i = r.behind(i)
		}
	}
	return 0, false
}

func (r logReader) manifest() bool { return r.number == 0 }

// length is the length of what the chunk at a place holds, as its header says.
func (r logReader) length(at int) int { return int(binary.LittleEndian.Uint16(r.b[at+4:])) }

// borderBehind is where the block that contains a place ends.
func borderBehind(at int) int { return (at/blockBytes + 1) * blockBytes }

func blockEnd(b []byte, at int) int { return min(len(b), borderBehind(at)) }

func zeros(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// chunk reads the chunk at a place. It returns where the chunk ends, and up to where the log
// was on disk when the chunk was made. Each record of a manifest is on disk before the next
// begins, but its first chunk need not be before its others: only one that begins a record
// shows anything. whole is false if there is no chunk of this log.
func (r logReader) chunk(at int) (end int, synced uint64, whole bool) {
	border := blockEnd(r.b, at)
	if at+r.header > border || !r.mine(at) {
		return 0, 0, false
	}
	end = at + r.header + r.length(at)
	if end > border {
		return 0, 0, false
	}
	switch kind := r.b[at+6]; {
	case !r.manifest():
		synced = binary.LittleEndian.Uint64(r.b[at+11:])
	case kind < kindManifest+2:
		synced = math.MaxUint64
	}
	return end, synced, binary.LittleEndian.Uint32(r.b[at:]) == masked(crc32.Checksum(r.b[at+6:end], castagnoli))
}

// begins says whether a whole chunk begins at a place.
func (r logReader) begins(at int) bool {
	_, _, whole := r.chunk(at)
	return whole
}

// mine says whether the header at a place has one of this log's kinds, and its number.
func (r logReader) mine(at int) bool {
	kind := r.b[at+6]
	return kind >= r.kind && kind < r.kind+4 &&
		(r.manifest() || binary.LittleEndian.Uint32(r.b[at+7:]) == r.number)
}

// trailer says whether a closed log ends here: with an empty chunk of the next number.
func (r logReader) trailer(rest []byte) bool {
	want := binary.LittleEndian.AppendUint32([]byte{0, 0, 0, 0, 0, 0, 5}, r.number+1)
	return !r.manifest() && bytes.HasPrefix(rest, want)
}

// behind is where a chunk may begin after the broken one at a place: where its header says or,
// if that is lost, at the next border. In a manifest it may also begin after the zeros.
func (r logReader) behind(at int) int {
	end, border := blockEnd(r.b, at), borderBehind(at)
	switch {
	case at+chunkHeader > end:
		return border
	case r.manifest() && zeros(r.b[at:at+chunkHeader]):
		return end - len(bytes.TrimLeft(r.b[at:end], "\x00"))
	case !r.manifest() && (zeros(r.b[at:at+chunkHeader]) || r.lost(at, at+chunkHeader)):
		return border
	}
	return min(border, at+r.header+r.length(at))
}

// behindFirst is behind, even if only the length is broken: the checksum covers the rest, and
// so reveals it. But a client can forge a match for a part of its chunk, in case the end is
// torn: so in a log a match counts only if nothing that the header covers can be lost. And one
// place in four billion matches by chance: so none counts if a chunk begins where the header
// says, and none at the match.
func (r logReader) behindFirst(at int) int {
	said, end := r.behind(at), blockEnd(r.b, at)
	if at+r.header > end || !r.mine(at) {
		return said
	}
	tooLong := at+r.header+r.length(at) > borderBehind(at) // no chunk is, not even a torn one
	if !r.manifest() && (r.lost(at, at+chunkHeader) || !tooLong && r.lost(at, said)) {
		return said
	}
	sum := crc32.Checksum(r.b[at+6:at+r.header], castagnoli)
	for i := at + r.header; ; i++ {
		if masked(sum) == binary.LittleEndian.Uint32(r.b[at:]) && (r.begins(i) || !r.begins(said)) {
			return i
		}
		if i == end {
			return said
		}
		sum = crc32.Update(sum, castagnoli, r.b[i:i+1])
	}
}

// lost says whether a power loss may have taken a part of this piece: the file ends before it
// does, or nothing is left of what was written to one of its sectors.
func (r logReader) lost(from, to int) bool {
	for ; from < to; from = (from/sectorBytes + 1) * sectorBytes {
		if zeros(r.b[min(from, len(r.b)):min(len(r.b), (from/sectorBytes+1)*sectorBytes)]) {
			return true
		}
	}
	return to > len(r.b)
}

// masked is a checksum in the form that chunks hold.
func masked(sum uint32) uint32 { return (sum>>15 | sum<<17) + 0xa282ead8 }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
