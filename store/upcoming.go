package store

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/postdate/postdate"
)

// UpcomingQuery asks how many messages of a tenant are due when. The range From to To is divided into slots of
// Step; the last one ends at To.
type UpcomingQuery struct {
	Tenant   string
	Channel  postdate.Channel // only its messages; "": those of all channels
	From, To postdate.Time    // To is later than From
	Step     time.Duration    // at least a millisecond

	later postdate.Time // of a PendingQuery: where what is not due yet begins; 0: it is none
}

func (q *UpcomingQuery) step() postdate.Time { return max(1, postdate.Time(q.Step/time.Millisecond)) }

// Slots is how many slots the range has.
func (q *UpcomingQuery) Slots() int {
	if q.later != 0 {
		return q.SlotOf(q.To-1) + 1
	}
	return int((q.To - q.From + q.step() - 1) / q.step())
}

// SlotOf is the number of the slot that a time of the range lies in.
func (q *UpcomingQuery) SlotOf(at postdate.Time) int {
	if q.later != 0 {
		return pendingSlotOf(at, q.later)
	}
	return int((at - q.From) / q.step())
}

// Begin is where a slot begins; that of the slot after the last one is the range's end.
func (q *UpcomingQuery) Begin(slot int) postdate.Time {
	if q.later != 0 {
		return min(pendingBegin(slot, q.later), q.To)
	}
	return min(q.From+postdate.Time(slot)*q.step(), q.To)
}

// UpcomingSlot says how many messages are due from From until the next slot begins.
type UpcomingSlot struct {
	From  postdate.Time
	Count int64
	Exact bool // false: it is an estimate
	// Channels are those of the [UpcomingChannelsMax] that have most in the whole range which have something in
	// this slot, in the same order in each slot. It is empty if the query names a channel.
	Channels []ChannelCount
}

// ChannelCount is a part of an UpcomingSlot.
type ChannelCount struct {
	Channel postdate.Channel
	Count   int64
}

// UpcomingChannelsMax is how many channels an answer to an UpcomingQuery names.
const UpcomingChannelsMax = 10

// Forecast adds up what a store finds for an UpcomingQuery. Ids are spread over the buckets by a hash, so what a store
// finds in some whole buckets is a fair sample of all.
type Forecast struct {
	Exact bool // false: it is an estimate
	q     *UpcomingQuery
	found map[forecastPart]float64
}

type forecastPart struct {
	slot    int
	channel postdate.Channel
	waits   Waits
}

// Waits is what a PENDING message waits for.
type Waits uint8

// What messages wait for.
const (
	ForTime    Waits = iota // its next attempt
	ForChannel              // it is parked
	ForResume               // it is a series that is paused
)

// WaitsOf says what a PENDING message waits for.
func WaitsOf(parked, paused bool) Waits {
	switch {
	case parked:
		return ForChannel
	case paused:
		return ForResume
	}
	return ForTime
}

// NewForecast is a Forecast in which nothing was found.
func NewForecast(q *UpcomingQuery) *Forecast {
	return &Forecast{q: q, found: map[forecastPart]float64{}}
}

// Add adds n messages of the tenant whose time lies in a slot, unless the query leaves out their channel or what they
// wait for.
func (f *Forecast) Add(slot int, channel postdate.Channel, waits Waits, n int) {
	if f.q.Wants(waits) && (f.q.Channel == "" || f.q.Channel == channel) {
		f.found[forecastPart{slot, channel, waits}] += float64(n)
	}
}

// Join adds what another Forecast of the same query found, and empties that.
func (f *Forecast) Join(other *Forecast) {
	for part, n := range other.found {
		f.found[part] += n
	}
	clear(other.found)
}

// Scale multiplies what was found in each slot.
func (f *Forecast) Scale(by func(slot int) float64) {
	for part, n := range f.found {
		f.found[part] = n * by(part.slot)
	}
}

// Slots are all slots with what was found.
func (f *Forecast) Slots() []UpcomingSlot {
	slots, sums := make([]UpcomingSlot, f.q.Slots()), make([]float64, f.q.Slots())
	for part, n := range f.found {
		sums[part.slot] += n
	}
	for i := range slots {
		slots[i] = UpcomingSlot{From: f.q.Begin(i), Count: int64(math.Round(sums[i])), Exact: f.Exact}
	}
	if f.q.Channel != "" {
		return slots
	}
	for _, channel := range f.top(UpcomingChannelsMax) {
		for i := range slots {
			// rounded down: together they are not more than all
			if n := int64(f.found[forecastPart{i, channel, ForTime}]); n > 0 {
				slots[i].Channels = append(slots[i].Channels, ChannelCount{channel, n})
			}
		}
	}
	return slots
}

// top are the channels of which most was found; of those with as much, the first by name.
func (f *Forecast) top(most int) []postdate.Channel {
	sums := map[postdate.Channel]float64{}
	for part, n := range f.found {
		sums[part.channel] += n
	}
	all := slices.SortedFunc(maps.Keys(sums), func(a, b postdate.Channel) int {
		return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b))
	})
	return all[:min(len(all), most)]
}

// Strip is what a store read of a part of one bucket, from the part's beginning on: a slot, or what lies before or
// after all slots. It counts all of a tenant's that is pending, whether the query selects it or not.
type Strip struct {
	From, To postdate.Time
	Read     int           // entries, whoever's they are
	Own      int           // of these, the tenant's
	Last     postdate.Time // the time of the last one
	More     bool          // it did not read all
	Weight   float64       // about how much the tenant's rest is, in one unit for all strips; 0, as Within: not known
	Within   float64       // by how much Weight may be wrong
}

// steadyShare is the share of its strip that the entries which were read must span so that they tell how many the rest
// has. What spans less is taken for a peak.
const steadyShare = 1.0 / 64

// Spread estimates how many entries each strip of a bucket has of a tenant's. total is how many the tenant has in the
// whole bucket. What was not read is the rest of that:
//
//   - A strip goes on as densely as it began, within what its weight allows.
//   - If no weights are known, the strips that begin with a peak share what the others do not have. Otherwise they have
//     what their weights say.
func Spread(total float64, strips []Strip) []float64 {
	counts, left, weight := make([]float64, len(strips)), total, 0.0
	for i := range strips {
		counts[i] = float64(strips[i].Own)
		left -= counts[i]
		weight += strips[i].Weight
	}
	if weight > 0 && left <= 0 {
		return counts
	}
	rests, sum := make([]float64, len(strips)), 0.0
	var peaks []int
	for i := range strips {
		rest, steady := strips[i].steady()
		if weight > 0 {
			rest = strips[i].allowed(rest, steady, left/weight)
		} else if !steady {
			peaks = append(peaks, i)
		}
		rests[i] = rest
		sum += rest
	}
	switch {
	case left <= 0: // the total lags behind
	case len(peaks) > 0 && sum < left:
		for _, i := range peaks {
			rests[i] = (left - sum) / float64(len(peaks))
		}
	case sum > 0:
		for i := range rests {
			rests[i] *= left / sum
		}
	}
	for i := range counts {
		counts[i] += rests[i]
	}
	return counts
}

// steady is how many of the tenant's follow if the strip goes on as densely as it began; ok is false if it began with a
// peak, which says nothing.
func (s *Strip) steady() (rest float64, ok bool) {
	if !s.More || s.Own == 0 {
		return 0, true
	}
	span, whole := float64(s.Last-s.From+1), float64(s.To-s.From)
	if span < whole*steadyShare {
		return 0, false
	}
	return float64(s.Own) * (whole - span) / span, true
}

// allowed is the nearest to rest that the weight allows, if the strip is steady. unit is how many entries weigh 1.
func (s *Strip) allowed(rest float64, steady bool, unit float64) float64 {
	if !steady {
		return s.Weight * unit
	}
	return min(max(rest, (s.Weight-s.Within)*unit), (s.Weight+s.Within)*unit)
}
