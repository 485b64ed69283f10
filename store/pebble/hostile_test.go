package pebble

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/testrun"
)

// chunkOf is a chunk of a log, or of a manifest, whose number is 0.
func chunkOf(kind byte, number uint32, synced uint64, body []byte) []byte {
	b := []byte{kind}
	if kind > 4 {
		b = binary.LittleEndian.AppendUint32(b, number)
	}
	if kind > 8 {
		b = binary.LittleEndian.AppendUint64(b, synced)
	}
	b = append(b, body...)
	head := binary.LittleEndian.AppendUint32(nil, masked(crc32.Checksum(b, castagnoli)))
	return append(binary.LittleEndian.AppendUint16(head, uint16(len(body))), b...)
}

// guessed is how many numbers, from 0 on, a client guesses for its log.
const guessed = 100

// hostile are payloads that look like pieces of a log.
func hostile() map[string][]byte {
	all := map[string][]byte{"harmless": []byte("1234567")}
	for _, kind := range []byte{1, 2, 5, 9, 12} {
		var guesses []byte
		for number := range uint32(guessed) {
			guesses = append(guesses, chunkOf(kind, number, math.MaxUint64, nil)...)
			if kind <= 4 {
				break // it has no number
			}
		}
		all[fmt.Sprintf("kind %d", kind)] = guesses
	}
	return all
}

// newestLog is the name of the log that is being written, and its content.
func newestLog(t *testing.T, disk vfs.FS, dir string) (name string, b []byte) {
	t.Helper()
	names, err := disk.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return filepath.Ext(n) != ".log" })
	name = disk.PathJoin(dir, slices.Max(names))
	f, err := disk.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err = io.ReadAll(f); err != nil {
		t.Fatal(err)
	}
	return name, b
}

// crashed is the disk as a crash leaves it.
func crashed(disk *vfs.MemFS) *vfs.MemFS {
	return disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

// withFile is the disk with this content in the file.
func withFile(t *testing.T, disk *vfs.MemFS, name string, b []byte) vfs.FS {
	t.Helper()
	left := crashed(disk)
	f, err := left.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(slices.Clone(b)); err != nil { // under the race detector it spoils what it is given
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return left
}

// What clients send never decides whether a store opens: not after an orderly stop, not after a
// kill, and not after a power loss that tore the end.
func TestAPayloadThatLooksLikeALog(t *testing.T) {
	const count, bytesEach = 60, 64 << 10
	for name, piece := range hostile() {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewCrashableMem()
			c := openConfig("store")
			c.MemtableSize = 256 << 10
			s, err := OpenWith(c, Parts{FS: disk})
			if err != nil {
				t.Fatal(err)
			}
			insert := func(i, size int) {
				t.Helper()
				m := openMessage(i)
				m.Payload = bytes.Repeat(piece, size/len(piece)+1)[i%7:]
				if err := s.Insert(t.Context(), []postdate.Message{m})[0].Err; err != nil {
					t.Fatal(err)
				}
			}
			for i := range count { // some memtables, so that logs would be used again
				insert(i, bytesEach)
			}
			if err := s.db.Flush(); err != nil {
				t.Fatal(err)
			}
			insert(count, 10)
			killed := crashed(disk)
			log, b := newestLog(t, killed, c.Dir)
			opens(t, c, withFile(t, killed, log, b), count+1)
			insert(count+1, bytesEach)
			killed = crashed(disk)
			log, b = newestLog(t, killed, c.Dir)
			if log > disk.PathJoin(c.Dir, fmt.Sprintf("%06d.log", guessed-1)) {
				t.Fatalf("nobody guesses %s", log)
			}
			end := len(bytes.TrimRight(b, "\x00"))
			for cut := 1; cut < bytesEach/2; cut = cut*6 + 1 {
				opens(t, c, withFile(t, killed, log, b[:end-cut]), count+1)
				torn := slices.Clone(b)
				from := (end - cut) / sectorBytes * sectorBytes
				clear(torn[from:min(len(torn), from+sectorBytes)])
				opens(t, c, withFile(t, killed, log, torn), count+1)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			opens(t, c, disk, count+2)
		})
	}
}

// opens opens a store, in which n messages have to be.
func opens(t *testing.T, c Config, disk vfs.FS, n int) {
	t.Helper()
	s, err := OpenWith(c, Parts{FS: disk})
	if err != nil {
		t.Fatalf("it does not start: %v", err)
	}
	defer s.Close()
	for i := range n {
		if _, err := s.Get(t.Context(), bucket.KeyOf(postdate.DefaultTenant, fmt.Sprint("m-", i), openBuckets)); err != nil {
			t.Fatalf("message %d of %d: %v", i, n, err)
		}
	}
}

// logOf is a log of these records, each of which is on disk before the next begins; and
// where each begins.
func logOf(number uint32, records ...[]byte) (b []byte, begins []int) {
	r := newLogReader(nil, number)
	for _, record := range records {
		synced := uint64(len(b))
		begins = append(begins, len(b))
		for first, last := true, false; !last; first = false {
			room := borderBehind(len(b)) - len(b) - r.header
			part := record[:min(len(record), room)]
			record, last = record[len(part):], len(part) == len(record)
			kind := r.kind + map[[2]bool]byte{{true, true}: 0, {true, false}: 1, {false, false}: 2, {false, true}: 3}[[2]bool{first, last}]
			b = append(b, chunkOf(kind, number, synced, part)...)
			if left := borderBehind(len(b)-1) - len(b); left < r.header {
				b = append(b, make([]byte, left)...)
			}
		}
	}
	return b, begins
}

// noise are n bytes without a zero.
func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + r.IntN(255))
	}
	return b
}

// No sectors of the last record that a power loss takes, and no place where it ends the file,
// count as damage. The record of a log is full of what looks like later chunks of the same log,
// and that of a manifest is full of names that look as much like chunks as names can.
func TestNoTornRecordIsDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	for _, number := range []uint32{0, 7} {
		full := newLogReader(nil, number).kind
		forged := chunkOf(full, number, math.MaxUint64, nil)
		if number == 0 {
			forged = append(chunkOf(' ', 0, 0, bytes.Repeat([]byte{' '}, 0x2020)), 0)
		}
		for range 2_000 {
			pad := r.IntN(len(forged))
			last := append(noise(r, pad), bytes.Repeat(forged, r.IntN(100_000/len(forged)))...)
			b, begins := logOf(number, noise(r, r.IntN(2*blockBytes)), last)
			if at, broken := brokenChunk(b, number); broken {
				t.Fatalf("an intact one is broken at %d", at)
			}
			if r.IntN(2) == 0 {
				b = b[:begins[1]+r.IntN(len(b)-begins[1]+1)]
			}
			for from, share := begins[1], r.IntN(8); from < len(b); {
				to := min(len(b), (from/sectorBytes+1)*sectorBytes)
				if r.IntN(8) < share {
					clear(b[from:to])
				}
				from = to
			}
			if at, broken := brokenChunk(b, number); broken {
				t.Fatalf("log %d, a record that begins at %d: it says broken at %d", number, begins[1], at)
			}
		}
	}
}

// If a sector's border crosses the header of a torn record, half of its length may be left.
func TestATornHeader(t *testing.T) {
	r := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	const number = 7
	forged := chunkOf(kindLog, number, math.MaxUint64, nil)
	record := append(slices.Clone(forged), noise(r, 0x300-len(forged))...)
	record = append(append(record, forged...), noise(r, 100)...) // where 0x03.. says, without its second half
	for left := 1; left < syncHeader; left++ {
		b, begins := logOf(number, noise(r, sectorBytes-left-syncHeader), record)
		for from := begins[1]; from < len(b); from = (from/sectorBytes + 1) * sectorBytes {
			torn := slices.Clone(b)
			clear(torn[from:min(len(b), (from/sectorBytes+1)*sectorBytes)])
			if at, broken := brokenChunk(torn, number); broken {
				t.Errorf("%d bytes of a header before the border, torn at %d: it says broken at %d", left, from, at)
			}
		}
	}
}

// An earlier version reused its logs. Anything may follow the end of one that was closed.
func TestALogOfAnEarlierVersion(t *testing.T) {
	r := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	const number = 7
	b, _ := logOf(number, noise(r, 1_000), noise(r, 1_000))
	b = append(b, 0, 0, 0, 0, 0, 0, 5, number+1, 0, 0, 0)
	b = append(b, bytes.Repeat(chunkOf(kindLog, number, math.MaxUint64, nil), 1_000)...)
	for shift := range syncHeader { // whatever the place where they begin
		old := append(slices.Clone(b[:len(b)-19_000]), b[len(b)-19_000+shift:]...)
		if at, broken := brokenChunk(old, number); broken {
			t.Errorf("it says broken at %d", at)
		}
	}
}

// forced are four bytes that turn one checksum into another.
func forced(from, to uint32) []byte {
	state := ^to
	for range 4 {
		i := slices.IndexFunc(castagnoli[:], func(v uint32) bool { return v>>24 == state>>24 })
		state = (state^castagnoli[i])<<8 | uint32(i)
	}
	return binary.LittleEndian.AppendUint32(nil, state^^from)
}

// A client that foresees its whole chunk cannot make the reader take a part of it for a chunk
// of which only the length is broken.
func TestATornRecordWithAForgedLength(t *testing.T) {
	r := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	const number, part = 7, 900
	record := noise(r, part)
	b, _ := logOf(number, record)
	want := crc32.Checksum(b[6:], castagnoli)
	record = append(record, chunkOf(kindLog, number, math.MaxUint64, nil)...)
	record = append(record, noise(r, 4_000)...)
	b, _ = logOf(number, record)
	record = append(record, forced(crc32.Checksum(b[6:], castagnoli), want)...)
	b, _ = logOf(number, record)
	if crc32.Checksum(b[6:], castagnoli) != want {
		t.Fatal("the checksum is not forged")
	}
	before, begins := logOf(number, noise(r, sectorBytes-syncHeader), record)
	copy(before[begins[1]+4:], b[4:6]) // the synced offset is another one
	copy(before[begins[1]:], b)
	for to := begins[1] + 2_000; to < len(before); to += 100 {
		if at, broken := brokenChunk(before[:to], number); broken {
			t.Errorf("cut off at %d: it says broken at %d", to, at)
		}
		torn := slices.Clone(before)
		from := to / sectorBytes * sectorBytes
		clear(torn[from:min(len(torn), from+sectorBytes)])
		if at, broken := brokenChunk(torn, number); broken {
			t.Errorf("torn at %d: it says broken at %d", from, at)
		}
	}
}

// A broken byte is told although, with it, a part of the chunk has the checksum of the whole.
func TestAMatchByChance(t *testing.T) {
	r := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	for _, number := range []uint32{0, 7} {
		record := noise(r, 300)
		b, _ := logOf(number, record)
		b[100] ^= 1
		want := crc32.Checksum(b[6:], castagnoli)
		record = append(record, noise(r, 300)...)
		b, _ = logOf(number, record)
		record = append(record, forced(crc32.Checksum(b[6:], castagnoli), want)...)
		b, _ = logOf(number, record, noise(r, 300), noise(r, 300))
		b[100] ^= 1
		if at, broken := brokenChunk(b, number); at != 0 || !broken {
			t.Errorf("log %d: broken at 0; it says %d, %t", number, at, broken)
		}
	}
}

// Every flipped bit in what is surely on disk is reported, except some in the length of a chunk
// in the last block of a log: if it then says that the chunk ends after the end of the file, as
// a chunk that was cut off does, or if a sector's border leaves only zeros of the header.
func TestEachFlippedBitIsTold(t *testing.T) {
	r := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	for _, number := range []uint32{0, 7} {
		var records [][]byte
		for range 150 {
			records = append(records, noise(r, 100+r.IntN(500)))
		}
		b, begins := logOf(number, records...)
		bits, untold := 0, 0
		for n, begin := range begins[:len(begins)-2] {
			if begin < blockBytes && n%8 != 0 {
				continue
			}
			for i := begin; i < begins[n+1]; i++ {
				if i > begin+syncHeader && i%100 != 0 {
					continue // many, and all alike
				}
				for bit := range 8 {
					b[i] ^= 1 << bit
					at, broken := brokenChunk(b, number)
					switch {
					case broken && at > i:
						t.Errorf("broken at %d: it says %d", i, at)
					case !broken && !mayBeTorn(b, number, begin, i):
						t.Errorf("log %d of %d bytes: bit %d of byte %d of the chunk at %d is not told", number, len(b), bit, i-begin, begin)
					case !broken:
						untold++
					}
					b[i] ^= 1 << bit
					bits++
				}
			}
		}
		t.Logf("log %d: %d of %d bits are not told", number, untold, bits)
	}
}

// mayBeTorn says whether a torn end may explain a broken byte of a chunk.
func mayBeTorn(b []byte, number uint32, begin, broken int) bool {
	r, lastBlock := newLogReader(b, number), (len(b)-1)/blockBytes*blockBytes
	if begin < lastBlock || r.manifest() {
		return false
	}
	isLength := broken == begin+4 || broken == begin+5
	return r.lost(begin, begin+chunkHeader) || isLength && begin+r.header+r.length(begin) > len(b)
}
