package pebble

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	lsm "github.com/cockroachdb/pebble/v2"
)

// Pebble takes the first broken chunk of its logs for the torn end of a write
// that a power loss cut short, drops what follows, and deletes the tables that it
// then knows nothing of. In the last block of the write-ahead log, and anywhere
// in the manifest, that is also what a flipped bit looks like to it. So the logs
// are read before it opens them, and a store is refused where a whole chunk lies
// behind a broken one and shows that the broken one had been on disk. The very
// last record has nothing behind it and stays Pebble's to judge; so does, in the last
// block of a log, a chunk whose length is lost or says that the file was cut off in it.
//
// What clients send lies in the logs too, and may look like a chunk. So a chunk counts
// only where Pebble wrote one: behind another, or at a block's border. Behind a broken
// one that is where its header says, of which a power loss may have left a part. But a
// log's file is never used again (pacedFS.ReuseForWrite): what is lost of it reads as
// zeros, and so a header shows whether it is all there. Of a manifest clients write
// nothing but names. No byte of them is below a space, as each chunk's kind is, so that
// a chunk cannot lie in one, and what begins in one goes on in what only Pebble knows.

// checkLogs looks for damage in the manifest and the write-ahead logs. It takes the
// directory's lock meanwhile: a log that is being written looks broken.
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
	if err := checkLog(c, filepath.Base(desc.ManifestFilename), 0); err != nil {
		return err
	}
	for _, name := range names {
		number, isLog := strings.CutSuffix(name, ".log")
		if n, err := strconv.ParseUint(number, 10, 32); isLog && err == nil {
			if err := checkLog(c, name, uint32(n)); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkLog(c settings, name string, number uint32) error {
	f, err := c.FS.Open(c.FS.PathJoin(c.Dir, name))
	if err != nil {
		return openError(c.Dir, err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return openError(c.Dir, err)
	}
	if at, broken := brokenChunk(b, number); broken {
		return openError(c.Dir, fmt.Errorf("%w: %s is broken at byte %d, and goes on behind it", lsm.ErrCorruption, name, at))
	}
	return nil
}

const (
	blockBytes  = 32 << 10 // no chunk crosses a block's border
	sectorBytes = 512      // the least that a disk writes or loses as one
	chunkHeader = 7        // checksum, length, kind
	syncHeader  = 19       // and the log's number, and up to where it was on disk when the chunk was made
)

// The first of the four kinds of chunks in a manifest and in a log, for a whole record,
// and a record's first, middle and last part.
const (
	kindManifest = 1
	kindLog      = 9
)

// logReader reads a log, or a manifest, whose number is 0.
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

// brokenChunk is the place of the first chunk that is broken, though a later one
// shows that it had been on disk. The number is the log's, and 0 for a manifest.
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

// length is that of what the chunk at a place holds, as its header says.
func (r logReader) length(at int) int { return int(binary.LittleEndian.Uint16(r.b[at+4:])) }

// borderBehind is where the block of a place ends.
func borderBehind(at int) int { return (at/blockBytes + 1) * blockBytes }

func blockEnd(b []byte, at int) int { return min(len(b), borderBehind(at)) }

func zeros(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// chunk reads the chunk at a place: where it ends, and up to where the log was on
// disk when it was made. Each record of a manifest is on disk before the next
// begins, but not its first chunk before its others: only one that begins a record shows
// anything. whole is false where there is no chunk of this log.
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

// mine is whether the header at a place has a kind, and the number, of this log.
func (r logReader) mine(at int) bool {
	kind := r.b[at+6]
	return kind >= r.kind && kind < r.kind+4 &&
		(r.manifest() || binary.LittleEndian.Uint32(r.b[at+7:]) == r.number)
}

// trailer is whether a log ends here that was closed: with an empty chunk of the next number.
func (r logReader) trailer(rest []byte) bool {
	want := binary.LittleEndian.AppendUint32([]byte{0, 0, 0, 0, 0, 0, 5}, r.number+1)
	return !r.manifest() && bytes.HasPrefix(rest, want)
}

// behind is where a chunk may begin behind the broken one at a place: where its header says,
// or, where that is lost, at the next border. In a manifest it may also be behind the zeros.
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

// behindFirst is behind, also where the length alone is broken. The checksum is of all but the
// length, and so names it. But that a client may foresee, where the end of its chunk was
// torn: so in a log it counts only where nothing can be lost of what the header speaks of.
func (r logReader) behindFirst(at int) int {
	said, end := r.behind(at), blockEnd(r.b, at)
	if at+r.header > end || !r.mine(at) {
		return said
	}
	tooLong := at+r.header+r.length(at) > borderBehind(at) // no chunk is, and so none that is torn
	if !r.manifest() && (r.lost(at, at+chunkHeader) || !tooLong && r.lost(at, said)) {
		return said
	}
	sum := crc32.Checksum(r.b[at+6:at+r.header], castagnoli)
	for i := at + r.header; ; i++ {
		if masked(sum) == binary.LittleEndian.Uint32(r.b[at:]) {
			return i
		}
		if i == end {
			return said
		}
		sum = crc32.Update(sum, castagnoli, r.b[i:i+1])
	}
}

// lost is whether a power loss may have taken a part of this piece: the file ends before it, or
// nothing is left of what was written to one of its sectors.
func (r logReader) lost(from, to int) bool {
	for ; from < to; from = (from/sectorBytes + 1) * sectorBytes {
		if zeros(r.b[min(from, len(r.b)):min(len(r.b), (from/sectorBytes+1)*sectorBytes)]) {
			return true
		}
	}
	return to > len(r.b)
}

// masked is a checksum as chunks hold it.
func masked(sum uint32) uint32 { return (sum>>15 | sum<<17) + 0xa282ead8 }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
