package pebble

import (
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
// last record has nothing behind it and stays Pebble's to judge.

// checkLogs looks for damage in the manifest and the write-ahead logs. It takes the
// directory's lock meanwhile: a log that is being written looks broken.
func checkLogs(c Config) error {
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

func checkLog(c Config, name string, number uint32) error {
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
	blockBytes = 32 << 10 // no chunk crosses a block's border
	// searchBytes bounds how far behind a broken chunk a whole one is looked for.
	searchBytes = 4 * blockBytes
	chunkHeader = 7  // checksum, length, kind
	logHeader   = 11 // and the log's number
	syncHeader  = 19 // and up to where the log was on disk when the chunk was made
)

// brokenChunk is the place of the first chunk that is broken, though a later one
// shows that it had been written.
func brokenChunk(b []byte, number uint32) (at int, broken bool) {
	for at < len(b) {
		if end, _, whole := chunk(b, at, number); whole {
			at = end
			continue
		}
		rest := b[at:blockEnd(b, at)]
		if len(rest) >= syncHeader || strings.Trim(string(rest), "\x00") != "" {
			break
		}
		at += len(rest) // too little room for a chunk: the next one begins a block
	}
	for i, to := at+1, at+searchBytes; i < min(len(b), to); {
		end, synced, whole := chunk(b, i, number)
		switch {
		case whole && synced > uint64(at):
			return at, true
		case whole: // the broken one's record may go on with it
			i, to = end, end+searchBytes
		default:
			i++
		}
	}
	return 0, false
}

func blockEnd(b []byte, at int) int { return min(len(b), (at/blockBytes+1)*blockBytes) }

// chunk reads the chunk at a place: where it ends, and up to where the log was on
// disk when it was made. Each record of a manifest is on disk before the next
// begins, but not its first chunk before its others: only one that begins a record shows
// anything. whole is false where there is no chunk of this log.
func chunk(b []byte, at int, number uint32) (end int, synced uint64, whole bool) {
	border := blockEnd(b, at)
	if at+chunkHeader > border {
		return 0, 0, false
	}
	header, synced := chunkHeader, uint64(math.MaxUint64)
	switch kind := b[at+6]; {
	case kind == 0 || kind > 12:
		return 0, 0, false
	case kind > 8:
		header = syncHeader
	case kind > 4:
		header = logHeader
	case kind > 2:
		synced = 0
	}
	end = at + header + int(binary.LittleEndian.Uint16(b[at+4:]))
	if end > border {
		return 0, 0, false
	}
	if header > chunkHeader {
		synced = 0
		if binary.LittleEndian.Uint32(b[at+7:]) != number {
			return 0, 0, false
		}
	}
	if header == syncHeader {
		synced = binary.LittleEndian.Uint64(b[at+11:])
	}
	sum := crc32.Checksum(b[at+6:end], castagnoli)
	return end, synced, binary.LittleEndian.Uint32(b[at:]) == (sum>>15|sum<<17)+0xa282ead8
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
