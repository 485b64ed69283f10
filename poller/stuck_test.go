package poller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// shop is a machine over buckets that hold messages, some of which cannot be reached, and
// channels, some of which answer nothing.
type shop struct {
	m      *Machine
	now    postdate.Now
	begin  postdate.Time
	due    map[int][]postdate.Record
	record map[int]bucket.Partition
	mute   func(postdate.Channel) bool
	broken func(bucket int) bool // calls that touch one of these fail
	down   func(postdate.Channel) bool
	lost   func(Claim) bool          // the answer of a claim is lost, which was written
	watch  func(Effect) (hangs bool) // sees every effect; what hangs is not answered

	arrived    map[postdate.Channel]int
	inFly      int       // messages of mute channels with the broker
	unanswered []Publish // the same
	mostFly    int
	added      int
	failed     map[string]failure // by id
	gone       map[int]bool       // buckets that were handed over
}

// failure is how a message failed, and when.
type failure struct {
	at postdate.Time
	as store.Settlement
}

func newShop(buckets int, change func(*Config)) *shop {
	c := DefaultConfig()
	if change != nil {
		change(&c)
	}
	s := &shop{
		m: newMachine(c), now: postdate.Now{Wall: 1_900_000_000_000, Mono: time.Minute}, due: map[int][]postdate.Record{}, record: map[int]bucket.Partition{},
		mute: func(postdate.Channel) bool { return false }, broken: func(int) bool { return false }, down: func(postdate.Channel) bool { return false },
		arrived: map[postdate.Channel]int{}, gone: map[int]bool{}, failed: map[string]failure{},
	}
	s.begin = s.now.Wall
	s.step(fence.LeaseUntil{Mono: 1 << 60, Read: s.now})
	for b := range buckets {
		s.record[b] = bucket.Partition{Bucket: b, Owner: "n", Token: 1, Checkpoint: s.now.Wall - 1000, Claimed: bucket.UpTo(s.now.Wall - 1000)}
		s.step(fence.Gained{Partitions: []bucket.Partition{s.record[b]}})
	}
	return s
}

func (s *shop) add(b int, channel string, n int, at postdate.Time) {
	for range n {
		s.added++
		m := postdate.Message{Key: postdate.Key{Bucket: b, Tenant: "t", ScheduleID: fmt.Sprintf("%s-%06d", channel, s.added)}, Channel: postdate.Channel(channel), ExecutionTime: at}
		s.due[b] = append(s.due[b], postdate.Record{Message: m, State: postdate.NewState(&m, 1)})
	}
	s.sort(b)
	s.step(Nudged{[]Nudge{{b, at}}})
}

// arrive is what a channel says to a batch.
func (s *shop) arrive(p Publish) publisher.Result {
	if s.down(p.Channel) {
		return publisher.Result{Outcome: publisher.Down, Reason: "no such host"}
	}
	s.arrived[p.Channel] += len(p.Batch)
	return publisher.Result{Outcome: publisher.Confirmed}
}

// parked is what a store answers that is asked for the channels with parked messages.
func (s *shop) parked(buckets []int) (found []store.ParkedChannel) {
	for _, b := range buckets {
		for _, r := range s.due[b] {
			if c := (store.ParkedChannel{Bucket: b, Channel: r.Channel}); r.Parked && !slices.Contains(found, c) {
				found = append(found, c)
			}
		}
	}
	return found
}

func (s *shop) sort(b int) {
	slices.SortFunc(s.due[b], func(x, y postdate.Record) int {
		return bucket.PositionOf(x.Key, x.AttemptTime).Compare(bucket.PositionOf(y.Key, y.AttemptTime))
	})
}

func (s *shop) claim(c store.Claim) store.ClaimResult {
	r := found(s.due[c.Bucket], c, 20_000)
	if r.To == (bucket.Position{}) {
		return r
	}
	c.Claim.To = r.To
	next, err := s.record[c.Bucket].Claim(c.Claim)
	if err != nil {
		return store.ClaimResult{Err: err}
	}
	s.record[c.Bucket] = next
	return r
}

func (s *shop) step(ev Event) {
	for _, e := range s.m.Step(s.now, ev) {
		if s.watch != nil && s.watch(e) {
			continue
		}
		switch e := e.(type) {
		case Claim:
			results := make([]store.ClaimResult, len(e.Claims))
			fails := false
			for _, c := range e.Claims {
				fails = fails || s.broken(c.Bucket)
			}
			for i, c := range e.Claims {
				switch {
				case fails:
					results[i].Err = postdate.E(postdate.KindUnknown, "no primary")
				default:
					results[i] = s.claim(c)
				}
			}
			if s.lost != nil && s.lost(e) {
				for i := range results {
					results[i] = store.ClaimResult{Err: postdate.E(postdate.KindUnknown, "the answer is lost")}
				}
			}
			s.step(Claimed{e.Call, results})
		case Publish:
			if s.mute(e.Channel) {
				s.unanswered = append(s.unanswered, e)
				s.inFly += len(e.Batch)
				s.mostFly = max(s.mostFly, s.inFly)
				continue
			}
			s.step(Published{e.Batch, publisher.All(len(e.Batch), s.arrive(e))})
		case Settle:
			for _, st := range e.Settlements {
				i := slices.IndexFunc(s.due[st.Key.Bucket], func(r postdate.Record) bool { return r.Key == st.Key })
				r := &s.due[st.Key.Bucket][i]
				if st.How == store.SettleFailed {
					s.failed[r.ScheduleID] = failure{s.now.Wall, st}
				}
				if r.State = st.State(r.State); r.Status.Final() {
					s.due[st.Key.Bucket] = slices.Delete(s.due[st.Key.Bucket], i, i+1)
				}
			}
			for b := range s.due {
				s.sort(b)
			}
			s.step(Settled{Call: e.Call})
		case Unpark:
			moved := 0
			for i := range s.due[e.Unpark.Bucket] {
				r := &s.due[e.Unpark.Bucket][i]
				if r.Channel == e.Unpark.Channel && r.Status == postdate.Pending && r.Parked && moved < e.Unpark.Limit {
					r.Parked, r.AttemptTime = false, e.Unpark.At
					moved++
				}
			}
			s.sort(e.Unpark.Bucket)
			s.step(Unparked{Unpark: e.Unpark, Moved: moved})
		case FindParked:
			s.step(ParkedFound{Buckets: e.Buckets, Found: s.parked(e.Buckets)})
		case fence.Drained:
			for _, hold := range e.Holds {
				s.gone[hold.Bucket] = true
			}
		}
	}
}

// answer confirms what is not answered.
func (s *shop) answer() {
	late := s.unanswered
	s.unanswered, s.inFly = nil, 0
	for _, p := range late {
		s.arrived[p.Channel] += len(p.Batch)
		s.step(Published{p.Batch, publisher.All(len(p.Batch), publisher.Result{Outcome: publisher.Confirmed})})
	}
}

func (s *shop) run(d time.Duration, each func()) {
	for end := s.now.Mono + d; s.now.Mono < end; {
		s.now = s.now.Later(5 * time.Millisecond)
		if each != nil {
			each()
		}
		s.step(fence.Tick{})
	}
}

// Many channels that answer nothing, or that a limit holds back, leave room for one that
// is well, however long their backlogs are.
func TestStuckChannelsLeaveRoom(t *testing.T) {
	for _, n := range []int{12, 400, 1_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := newShop(4, nil)
			var limits []store.ChannelSettings
			for i := range n {
				if i%2 == 0 {
					limits = append(limits, store.ChannelSettings{Channel: postdate.Channel(fmt.Sprintf("x:tight-%d", i)), MaxPerSecond: 1})
				}
			}
			s.step(Limits{limits})
			s.mute = func(c postdate.Channel) bool { return c[:6] == "x:mute" }
			for i := range n {
				name := fmt.Sprintf("x:mute-%d", i)
				if i%2 == 0 {
					name = fmt.Sprintf("x:tight-%d", i)
				}
				s.add(i%4, name, max(4_800/n, 2), s.now.Wall-500)
			}
			s.run(time.Second, nil)
			sent := 0
			s.run(2*time.Second, func() { // a message each 5 ms
				s.add(sent%4, "x:well", 1, s.now.Wall-1)
				sent++
			})
			s.run(300*time.Millisecond, nil)
			if got := s.arrived["x:well"]; got < sent {
				t.Errorf("%d of %d messages of a healthy channel arrived beside %d stuck ones", got, sent, n)
			}
			if s.m.hand > s.m.c.HandMax {
				t.Errorf("%d messages are in hand, at most %d", s.m.hand, s.m.c.HandMax)
			}
			if s.mostFly > s.m.c.HandMax/4+n {
				t.Errorf("%d messages are with brokers that never answered", s.mostFly)
			}
		})
	}
}

// Hosts that answer nothing, more than may hold a quarter of the hand, leave room for a
// channel that has its first message then: of another broker, of a new host, and a URL of its
// own at a host that has answered. Where they hold half of it, only a new host waits.
func TestFirstMessagesBesideHostsThatAnswerNothing(t *testing.T) {
	s := newShop(4, func(c *Config) { c.HandMax = 1_024 })
	s.mute = func(c postdate.Channel) bool { return strings.HasPrefix(string(c), "https://dead") }
	s.add(0, "https://well.example/first", 1, s.now.Wall-1)
	s.run(time.Second, nil)
	hosts := 0
	mute := func(n int) {
		for range 2 * n {
			s.add(hosts%4, fmt.Sprintf("https://dead-%d.example/%d", hosts/2, hosts), 1, s.now.Wall-500)
			hosts++
		}
		s.run(2*time.Second, nil)
	}
	arrive := func(channels ...string) {
		t.Helper()
		for i, c := range channels {
			s.add(i%4, c, 1, s.now.Wall-1)
		}
		s.run(300*time.Millisecond, nil)
		for _, c := range channels {
			if s.arrived[postdate.Channel(c)] != 1 {
				t.Errorf("%s waits", c)
			}
		}
	}
	mute(300)
	arrive("inbox:first", "https://new.example/first", "https://well.example/1", "https://well.example/2")
	mute(300)
	arrive("inbox:second", "https://well.example/3", "https://well.example/4")
	if s.mostFly != s.m.c.HandMax/2 {
		t.Errorf("%d messages are with hosts that never answered", s.mostFly)
	}
}

// What is remembered of hosts that answered is bounded.
func TestHostsThatAnsweredAreForgotten(t *testing.T) {
	s := newShop(4, nil)
	for i := range sitesKept + 500 {
		s.add(i%4, fmt.Sprintf("https://well-%d.example/", i), 1, s.now.Wall-1)
		if i%500 == 499 {
			s.run(time.Second, nil)
		}
	}
	s.run(time.Second, nil)
	if len(s.m.sites) != sitesKept || len(s.m.kept) != sitesKept {
		t.Errorf("%d hosts are remembered, and %d as such, want %d", len(s.m.sites), len(s.m.kept), sitesKept)
	}
	if s.m.sites["https://well-0.example"] != nil || s.m.sites["https://well-700.example"] == nil {
		t.Error("others are remembered than those that answered last")
	}
}

// A host that is forgotten twice, because it went down after it had answered, is not taken for
// the one of its name that came after it.
func TestAHostThatIsForgottenTwice(t *testing.T) {
	m := newMachine(DefaultConfig())
	for _, proven := range []bool{true, false} {
		c := m.channelOf("https://a.example/1")
		c.site.proven = proven
		m.forget(c)
	}
	again := m.channelOf("https://a.example/2").site
	for i := range sitesKept {
		c := m.channelOf(postdate.Channel(fmt.Sprintf("https://well-%d.example/", i)))
		c.site.proven = true
		m.forget(c)
	}
	if m.sites["https://a.example"] != again {
		t.Error("a host with a channel is forgotten")
	}
}

// A part of the store that is out of reach stops what lies there, and nothing else; and
// once it is back, all buckets go together again.
func TestAPartOfTheStoreThatFails(t *testing.T) {
	s := newShop(64, nil)
	s.run(3*time.Second, nil)
	down := true
	s.broken = func(b int) bool { return down && b%3 == 0 }
	s.run(time.Second, nil)
	for b := range 64 {
		s.add(b, fmt.Sprintf("x:%d", b), 3, s.now.Wall-1)
	}
	s.run(time.Second, nil)
	for b := range 64 {
		if got, want := s.arrived[postdate.Channel(fmt.Sprintf("x:%d", b))], 3; got != want && b%3 != 0 {
			t.Errorf("bucket %d: %d of %d arrived while others are out of reach", b, got, want)
		}
	}
	down = false
	s.run(3*time.Second, nil)
	for b := range 64 {
		if got := s.arrived[postdate.Channel(fmt.Sprintf("x:%d", b))]; got != 3 {
			t.Errorf("bucket %d: %d of 3 arrived when all is well again", b, got)
		}
	}
	if len(s.m.apart) > 0 {
		t.Errorf("%d lanes are left when all is well again", len(s.m.apart))
	}
}

// A bucket that is to be handed over goes at once where nothing is unanswered, whatever
// waits in it: what its channel does not take is parked, and nothing is in doubt.
func TestHandOverParksWhatWaits(t *testing.T) {
	s := newShop(1, nil)
	s.step(Limits{[]store.ChannelSettings{{Channel: "x:tight", MaxPerSecond: 1}}})
	s.add(0, "x:tight", 2_000, s.now.Wall-100)
	s.run(time.Second, nil)
	s.step(fence.Drain{Holds: []store.Hold{{Bucket: 0, Token: 1}}})
	s.run(500*time.Millisecond, nil)
	if !s.gone[0] {
		t.Fatal("it is not handed over")
	}
	doubt := 0
	for _, r := range s.due[0] {
		if r.PossibleDuplicate {
			t.Fatalf("%s is in doubt", r.ScheduleID)
		}
		if r.Status == postdate.Pending && !s.record[0].Withdrawable(r.Key, r.Channel, r.State) {
			doubt++
		}
	}
	if doubt > 0 {
		t.Errorf("%d messages that were never sent are in doubt for the next owner", doubt)
	}
}

// A publish that is not answered holds a hand-over up for DrainMax, and its bucket's other
// channels not at all; only what is unanswered is in doubt then.
func TestHandOverWithAPublishThatIsNotAnswered(t *testing.T) {
	s := newShop(1, nil)
	s.mute = func(c postdate.Channel) bool { return c == "x:mute" }
	s.add(0, "x:mute", 3, s.now.Wall-1)
	s.run(time.Second, nil)
	s.step(fence.Drain{Holds: []store.Hold{{Bucket: 0, Token: 1}}})
	sent, late := 0, 0
	s.run(s.m.c.DrainMax-s.m.c.DrainStep, func() {
		if s.arrived["x:well"] < sent-int(2*s.m.c.DrainStep/(5*time.Millisecond)) {
			late++
		}
		s.add(0, "x:well", 1, s.now.Wall-1)
		sent++
	})
	if late > 0 || s.arrived["x:well"] < sent-5 {
		t.Errorf("%d of %d messages of the other channel arrived, which was late %d times", s.arrived["x:well"], sent, late)
	}
	if s.gone[0] {
		t.Error("handed over though a publish is not answered")
	}
	s.run(3*s.m.c.DrainStep, nil)
	if !s.gone[0] {
		t.Fatal("it is not handed over")
	}
	for _, r := range s.due[0] {
		if r.PossibleDuplicate != (r.Channel == "x:mute") {
			t.Errorf("%s: in doubt %t", r.ScheduleID, r.PossibleDuplicate)
		}
	}
}

// URLs of one host fail together: one of them is tried for all, and a new one is not
// tried while the host is down.
func TestAHostIsTriedOnce(t *testing.T) {
	s := newShop(1, nil)
	tries := 0
	s.mute = func(c postdate.Channel) bool { return false }
	for i := range 200 {
		m := postdate.Message{Key: postdate.Key{Tenant: "t", ScheduleID: fmt.Sprintf("m%03d", i)}, Channel: postdate.Channel(fmt.Sprintf("https://dead.example/%d", i)), ExecutionTime: s.now.Wall - 2}
		s.due[0] = append(s.due[0], postdate.Record{Message: m, State: postdate.NewState(&m, 1)})
	}
	effects := s.m.Step(s.now, Nudged{[]Nudge{{0, s.now.Wall - 2}}})
	for len(effects) > 0 {
		e := effects[0]
		effects = effects[1:]
		switch e := e.(type) {
		case Claim:
			effects = append(effects, s.m.Step(s.now, Claimed{e.Call, []store.ClaimResult{s.claim(e.Claims[0])}})...)
		case Publish:
			if tries++; tries == 1 {
				effects = append(effects, s.m.Step(s.now, Published{e.Batch, publisher.All(len(e.Batch), publisher.Result{Outcome: publisher.Down, Reason: "no such host"})})...)
			}
		case Settle:
			effects = append(effects, s.m.Step(s.now, Settled{Call: e.Call})...)
		}
	}
	if down := s.m.sites["https://dead.example"]; down == nil || !down.down || len(s.m.sites) != 1 {
		t.Fatalf("the sites are %v", s.m.sites)
	}
	c := s.m.channelOf("https://dead.example/new")
	if !c.site.down {
		t.Error("a new URL of a host that is down is taken for one that is up")
	}
}

// Payloads in memory are bounded, however many buckets are read at a time.
func TestPayloadsAreBounded(t *testing.T) {
	s := newShop(0, func(c *Config) { c.HandBytesMax, c.PayloadBytesMax = 8<<20, 256<<10 })
	var ps []bucket.Partition
	for b := range 4_096 {
		ps = append(ps, bucket.Partition{Bucket: b, Owner: "n", Token: 1})
	}
	for _, e := range s.m.Step(s.now, fence.Gained{Partitions: ps}) {
		if c, ok := e.(Claim); ok && len(c.Claims)*s.m.c.PayloadBytesMax > s.m.c.HandBytesMax/2 {
			t.Errorf("%d buckets are read at a time, each of which may bring %d bytes: %d are allowed", len(c.Claims), s.m.c.PayloadBytesMax, s.m.c.HandBytesMax)
		}
	}
}

// Where the URL that tries for a host has nothing left, or is paused, another one tries:
// none waits for ever.
func TestAnotherOneTriesForTheHost(t *testing.T) {
	for name, paused := range map[string]bool{"nothing is left": false, "it is paused": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.owned(nil)
			urls := []postdate.Channel{"https://a.example/1", "https://a.example/2", "https://a.example/3"}
			var found []store.ParkedChannel
			for _, url := range urls {
				found = append(found, store.ParkedChannel{Bucket: 0, Channel: url})
			}
			effects := b.step(ParkedFound{Found: found})
			if paused {
				b.step(Limits{[]store.ChannelSettings{{Channel: urls[1], Paused: true}}})
			}
			tried := map[postdate.Channel]bool{}
			for range 6_000 {
				for _, u := range of[Unpark](effects) {
					tried[u.Unpark.Channel] = true
					b.step(Unparked{Unpark: u.Unpark, Moved: 0})
				}
				b.after(5 * time.Millisecond)
				effects = b.step(fence.Tick{})
				b.answerAll(effects)
				for range of[FindParked](effects) {
					b.step(ParkedFound{})
				}
			}
			for i, url := range urls {
				if !tried[url] && !(paused && i == 1) {
					t.Errorf("%s was never tried", url)
				}
			}
		})
	}
}
