package pebble

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// upcomingExaminedMax bounds how many entries one look at what is upcoming or pending goes over, bucket by bucket.
// Those of other tenants count too: they are in the way. If it ends within the first bucket, as many again are read in
// places.
const upcomingExaminedMax = 20_000

// After every upcomingRestEvery entries, which take some 0.3 ms, a look rests: it is in no hurry, and requests are.
// runtime.Gosched would not do: Go resumes the look before it asks the network for requests.
const (
	upcomingRestEvery = 500
	upcomingRest      = time.Millisecond
)

// entryBytesMin is less than what an entry of the due space takes on the disk. Where the disk has less for each, most
// is still in memory, and what it has says nothing.
const entryBytesMin = 8

// Upcoming implements store.Messages. It counts the first buckets, as many as it may, and takes them for a sample. If
// not even one may be counted, it reads the beginning of each slot in the first bucket, and estimates the rest by what
// that takes on the disk.
func (s *Store) Upcoming(ctx context.Context, q store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	f, err := s.forecast(ctx, &q)
	if err != nil {
		return nil, err
	}
	return f.Slots(), nil
}

// Pending implements store.Messages, as Upcoming.
func (s *Store) Pending(ctx context.Context, tenant string, at postdate.Time) (store.Pending, error) {
	q := store.PendingQuery(tenant, at)
	f, err := s.forecast(ctx, &q)
	if err != nil {
		return store.Pending{}, err
	}
	return f.Pending(), nil
}

func (s *Store) forecast(ctx context.Context, q *store.UpcomingQuery) (*store.Forecast, error) {
	u := upcoming{s: s, q: q, names: map[string]postdate.Channel{}}
	f, err := u.forecast(ctx, upcomingExaminedMax)
	if u.damaged > 1 {
		s.c.Log.Error("more messages cannot be counted", "count", u.damaged-1)
	}
	if err != nil {
		return nil, s.readError(err)
	}
	return f, s.awaitSynced()
}

// upcoming is one look at what is upcoming.
type upcoming struct {
	s        *Store
	q        *store.UpcomingQuery
	due      *lsm.Iterator
	names    map[string]postdate.Channel // that were read: none is made twice
	from, to []byte                      // the keys of the present strip
	examined int
	damaged  int // how many messages could not be read
}

func (u *upcoming) forecast(ctx context.Context, examinedMax int) (*store.Forecast, error) {
	var lows []postdate.Time
	var err error
	if u.due, lows, err = u.s.waiting(); err != nil {
		return nil, err
	}
	defer u.due.Close()
	all, part := store.NewForecast(u.q), store.NewForecast(u.q)
	buckets := u.s.c.Buckets
	for b := range buckets {
		strip, err := u.strip(b, max(u.q.From, lows[b]), u.q.To, examinedMax-u.examined, part)
		switch {
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case strip.More && b == 0:
			return u.estimate(lows[0], examinedMax)
		case strip.More:
			all.Scale(func(int) float64 { return float64(buckets) / float64(b) })
			return all, nil
		}
		all.Join(part)
	}
	all.Exact = u.damaged == 0
	return all, nil
}

// strip reads up to most entries of a part of a bucket, and adds the tenant's to f. The seek counts as one, too.
func (u *upcoming) strip(b int, from, to postdate.Time, most int, f *store.Forecast) (store.Strip, error) {
	strip := store.Strip{From: from, To: to}
	if from >= to {
		return strip, nil
	}
	u.from = timedKey(u.from[:0], spaceDue, b, bucket.Position{Time: from})
	u.to = timedKey(u.to[:0], spaceDue, b, bucket.Position{Time: to})
	u.examine()
	u.due.SeekGEWithLimit(u.from, u.to)
	u.read(&strip, most, f)
	return strip, u.due.Error()
}

// read reads up to most entries of a strip from where the walk stands, and adds the tenant's to f.
func (u *upcoming) read(strip *store.Strip, most int, f *store.Forecast) {
	for strip.Read, strip.Own, strip.More = 0, 0, false; u.due.Valid(); u.due.NextWithLimit(u.to) {
		key := u.due.Key()
		if bytes.Compare(key, u.to) >= 0 {
			return // a limit is not strict
		}
		if strip.Read >= most {
			strip.More = true
			return
		}
		u.examine()
		strip.Read++
		strip.Last = postdate.Time(binary.BigEndian.Uint64(key[1+bucketBytes:]))
		if ofTenant(key, u.q.Tenant) {
			strip.Own++
			u.count(strip.Last, f)
		}
	}
}

// examine counts an entry or a seek, and rests in time.
func (u *upcoming) examine() {
	if u.examined++; u.examined%upcomingRestEvery == 0 {
		time.Sleep(upcomingRest)
	}
}

// ofTenant says whether a due key is one of the tenant.
func ofTenant(key []byte, tenant string) bool {
	name := key[1+bucketBytes+timeBytes:]
	return len(name) > len(tenant) && name[len(tenant)] == 0 && string(name[:len(tenant)]) == tenant
}

// count adds the message where the walk stands to f, if it is due in the range.
func (u *upcoming) count(at postdate.Time, f *store.Forecast) {
	if at < u.q.From || at >= u.q.To {
		return
	}
	channel, waits, err := waitingFor(u.due.Value())
	if err != nil {
		if u.damaged++; u.damaged == 1 {
			p := splitTimed(u.due.Key()[1+bucketBytes:])
			u.s.c.Log.Error("a message cannot be counted: it is passed over and stays as it is",
				"scheduleId", p.ScheduleID, "error", err)
		}
		return
	}
	if u.q.Wants(waits) {
		name, known := u.names[string(channel)]
		if !known {
			name = postdate.Channel(channel)
			u.names[string(name)] = name
		}
		f.Add(u.q.SlotOf(at), name, waits, 1)
	}
}

// waitingFor reads only the channel from a state in the due space, and what the message waits for there.
func waitingFor(v []byte) (channel []byte, waits store.Waits, err error) {
	const flagsAt = 2 // after the layout and the status
	if channel, _, err = targetOf(v); err != nil {
		return nil, 0, err
	}
	return channel, store.WaitsOf(v[flagsAt]&flagParked != 0, v[flagsAt]&flagPaused != 0), nil
}

// estimate reads the beginnings of the slots of the first bucket, and of what lies before and after them.
func (u *upcoming) estimate(low postdate.Time, examinedMax int) (*store.Forecast, error) {
	n := u.q.Slots()
	most := max(1, examinedMax/2/(n+2))
	f := store.NewForecast(u.q)
	strips := make([]store.Strip, 0, n+2)
	add := func(from, to postdate.Time) error {
		strip, err := u.strip(0, from, to, most, f)
		if err == nil && strip.More {
			strip.Weight, strip.Within, err = u.bytes(u.due.Key(), u.to)
		}
		strips = append(strips, strip)
		return err
	}
	for i := range n {
		if err := add(max(low, u.q.Begin(i)), u.q.Begin(i+1)); err != nil {
			return nil, err
		}
	}
	for _, outside := range [][2]postdate.Time{{low, u.q.From}, {u.q.To, postdate.Far}} {
		if err := add(outside[0], outside[1]); err != nil {
			return nil, err
		}
	}
	usage, _ := u.s.UsageOf(u.q.Tenant, "")
	total := float64(usage.Messages) / float64(u.s.c.Buckets)
	forgetUnflushed(total, strips)
	if err := u.calibrate(strips, examinedMax/2/calibrated); err != nil {
		return nil, err
	}
	counts := store.Spread(total, strips)
	f.Scale(func(i int) float64 { return counts[i] / float64(strips[i].Own) * float64(u.s.c.Buckets) })
	return f, nil
}

// bytes is what lies between two entries on the disk. Blocks count whole, at either end, which is wrong by up to one.
func (u *upcoming) bytes(from, to []byte) (bytes, block float64, err error) {
	all, err := u.s.db.EstimateDiskUsage(from, to)
	if err != nil {
		return 0, 0, err
	}
	one, err := u.s.db.EstimateDiskUsage(from, from)
	return float64(all - min(all, one)), float64(one), err
}

// calibrated is how many strips tell what an entry takes on the disk. That differs with ids and times.
const calibrated = 2

// calibrate makes the tenant's entries of the bytes of strips. It reads more of those with most.
func (u *upcoming) calibrate(strips []store.Strip, most int) error {
	order := make([]int, len(strips))
	perByte := make([]float64, len(strips))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(strips[b].Weight, strips[a].Weight) })
	usual := math.Inf(1) // entries in a byte, whoever's they are: more in a peak, whose times are the same
	for _, i := range order[:calibrated] {
		next, bytes, err := u.further(&strips[i], most/2)
		if err != nil {
			return err
		}
		if bytes > 0 {
			perByte[i] = float64(next.Own) / bytes
			usual = min(usual, float64(next.Read)/bytes)
		}
	}
	if math.IsInf(usual, 1) {
		usual = 1 // the bytes are in proportion
	}
	for i := range strips {
		s := &strips[i]
		if perByte[i] == 0 && s.Read > 0 {
			perByte[i] = usual * float64(s.Own) / float64(s.Read)
		}
		s.Weight, s.Within = s.Weight*perByte[i], s.Within*perByte[i]
	}
	return nil
}

// further reads a strip again, and as many entries after that, which are like the rest. It returns those, and what they
// take on the disk: 0 if that cannot be said.
func (u *upcoming) further(s *store.Strip, most int) (next store.Strip, bytes float64, err error) {
	if s.Weight == 0 {
		return next, 0, nil
	}
	nothing := store.NewForecast(u.q)
	next, err = u.strip(0, s.From, s.To, most, nothing)
	if err != nil || !next.More {
		return next, 0, err
	}
	from := append([]byte(nil), u.due.Key()...)
	if u.read(&next, most, nothing); !next.More {
		return next, 0, u.due.Error()
	}
	bytes, _, err = u.bytes(from, u.due.Key())
	return next, bytes, err
}

// forgetUnflushed forgets the bytes of strips if they are too few for what was not read: that is in memory then.
func forgetUnflushed(total float64, strips []store.Strip) {
	bytes := 0.0
	for i := range strips {
		bytes += strips[i].Weight
		total -= float64(strips[i].Own)
	}
	if bytes < entryBytesMin*total {
		for i := range strips {
			strips[i].Weight, strips[i].Within = 0, 0
		}
	}
}
