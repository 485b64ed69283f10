package bucket_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/testrun"
)

// at is a position within the millisecond t; "" lies before all of it.
func at(t postdate.Time, id string) bucket.Position {
	if id == "" {
		return bucket.Position{Time: t}
	}
	return bucket.Position{Time: t, Tenant: postdate.DefaultTenant, ScheduleID: id}
}

type places = map[postdate.Route]bucket.Position

func TestPosition(t *testing.T) {
	inOrder := []bucket.Position{
		{}, {Time: 1}, {Time: 1, Tenant: "a", ScheduleID: "z"}, {Time: 1, Tenant: "b", ScheduleID: "a"},
		{Time: 1, Tenant: "b", ScheduleID: "aa"}, bucket.UpTo(1), {Time: 2, Tenant: "a"}, {Time: 10, Tenant: "a"},
	}
	for i, p := range inOrder {
		for j, q := range inOrder {
			got := p.Compare(q)
			if got < 0 != (i < j) || got > 0 != (i > j) || p.Before(q) != (i < j) {
				t.Errorf("%v against %v: %d, and Before says %t", p, q, got, p.Before(q))
			}
			if e, l := p.Earliest(q), p.Latest(q); e != inOrder[min(i, j)] || l != inOrder[max(i, j)] {
				t.Errorf("of %v and %v the earliest is %v, the latest %v", p, q, e, l)
			}
		}
	}
	key := postdate.Key{Bucket: 3, Tenant: postdate.DefaultTenant, ScheduleID: "a"}
	if got := bucket.PositionOf(key, 7); got != at(7, "a") {
		t.Errorf("a message at 7 waits at %v", got)
	}
	if p := bucket.PositionOf(key, 7); !p.Before(bucket.UpTo(7)) || p.Before(bucket.UpTo(6)) {
		t.Errorf("%v does not lie between %v and %v", p, bucket.UpTo(6), bucket.UpTo(7))
	}
}

func TestAcquireAndRelease(t *testing.T) {
	behind := places{"a:slow": at(110, "")}
	free := bucket.Partition{Bucket: 3, Token: 8, Claims: 4, Checkpoint: 100, Claimed: at(120, "m"), Behind: behind}
	a, ok := free.Acquire(8, "a", "a/1")
	want := free
	want.Owner, want.Lease, want.Token = "a", "a/1", 9
	if !ok || !a.Equal(want) {
		t.Fatalf("acquired %+v, %v; want %+v", a, ok, want)
	}
	if again, ok := a.Acquire(8, "b", "b/1"); ok || !again.Equal(a) {
		t.Errorf("who saw the old token got %+v", again)
	}
	b, ok := a.Acquire(9, "b", "b/1") // a takeover
	want.Owner, want.Lease, want.Token = "b", "b/1", 10
	if !ok || !b.Equal(want) {
		t.Fatalf("taken over: %+v, %v; want %+v", b, ok, want)
	}
	if left, ok := b.Release(9); ok || !left.Equal(b) {
		t.Errorf("who held it before released it: %+v", left)
	}
	left, ok := b.Release(10)
	if want.Owner, want.Lease = "", ""; !ok || !left.Equal(want) {
		t.Errorf("released: %+v, %v; want %+v", left, ok, want)
	}
}

// owned is the record that the claims of these tests meet.
var owned = bucket.Partition{
	Owner: "a", Lease: "a/1", Token: 5, Claims: 9, Checkpoint: 50, Claimed: at(120, "m"),
	Behind: places{"a:slow": at(80, "m"), "a:down": at(60, "")},
}

func TestClaim(t *testing.T) {
	claim := func(number uint64, checkpoint postdate.Time, to bucket.Position, behind places) bucket.Claim {
		return bucket.Claim{Token: 5, Number: number, Checkpoint: checkpoint, To: to, Behind: behind}
	}
	only := func(c bucket.Claim) bucket.Claim { c.Only = "a:slow"; return c }
	keeps, unchanged := owned.Behind, maps.Clone(owned.Behind)
	for _, test := range []struct {
		name       string
		claim      bucket.Claim
		checkpoint postdate.Time
		claimed    bucket.Position
		behind     places
	}{
		{"forward", claim(10, 55, at(160, ""), keeps), 55, at(160, ""), keeps},
		{"within a millisecond", claim(10, 50, at(120, "n"), keeps), 50, at(120, "n"), keeps},
		{"after some that never came", claim(12, 55, at(160, ""), keeps), 55, at(160, ""), keeps},
		{"claimed never moves back", claim(10, 55, at(120, "l"), keeps), 55, owned.Claimed, keeps},
		{"the checkpoint may", claim(10, 10, at(160, ""), keeps), 10, at(160, ""), keeps},
		{"with nothing behind", claim(10, 119, at(120, "m"), nil), 119, owned.Claimed, nil},
		{"with a map of nothing behind", claim(10, 119, at(120, "m"), places{}), 119, owned.Claimed, nil},
		{"one more behind", claim(10, 50, at(130, ""), places{"a:new": at(120, "m"), "a:slow": at(80, "m")}), 50, at(130, ""), places{"a:new": at(120, "m"), "a:slow": at(80, "m")}},
		{"one that falls back", claim(10, 50, at(130, ""), places{"a:slow": at(70, "")}), 50, at(130, ""), places{"a:slow": at(70, "")}},
		{"one that stands where the others do", claim(10, 50, at(130, ""), places{"a:slow": at(130, "")}), 50, at(130, ""), nil},
		{"one that stands beyond", claim(10, 50, at(130, ""), places{"a:slow": at(130, "a"), "a:down": at(60, "")}), 50, at(130, ""), places{"a:down": at(60, "")}},
		{"behind what was claimed before, and not behind the claim", claim(10, 50, at(90, ""), places{"a:slow": at(100, "")}), 50, owned.Claimed, places{"a:slow": at(100, "")}},
		{"only one channel", only(claim(10, 55, at(90, ""), keeps)), 55, owned.Claimed, places{"a:slow": at(90, ""), "a:down": at(60, "")}},
		{"only one channel, back", only(claim(10, 55, at(70, ""), keeps)), 55, owned.Claimed, keeps},
		{"only one channel, up to the others", only(claim(10, 55, at(120, "m"), keeps)), 55, owned.Claimed, places{"a:down": at(60, "")}},
		{"only one channel, almost up to the others", only(claim(10, 55, at(120, "l"), keeps)), 55, owned.Claimed, places{"a:slow": at(120, "l"), "a:down": at(60, "")}},
		{"only one channel, beyond the others", only(claim(10, 55, at(200, ""), places{"a:slow": at(80, "m")})), 55, owned.Claimed, nil},
		{"all of a tenant", only(claim(10, 50, at(130, ""), places{postdate.AllOf("b"): at(80, "")})), 50, owned.Claimed, places{postdate.AllOf("b"): at(80, "")}},
		{"only one channel, up to its tenant's others", only(claim(10, 55, at(110, ""), places{"a:slow": at(80, "m"), postdate.AllOf(postdate.DefaultTenant): at(90, "")})), 55, owned.Claimed, places{postdate.AllOf(postdate.DefaultTenant): at(90, "")}},
		{"only one channel that was not said to be behind", only(claim(10, 55, at(200, ""), places{"a:down": at(60, "")})), 55, owned.Claimed, places{"a:down": at(60, "")}},
	} {
		p, was := owned, maps.Clone(test.claim.Behind)
		next, err := p.Claim(test.claim)
		want := owned
		want.Claims, want.Checkpoint, want.Claimed, want.Behind = test.claim.Number, test.checkpoint, test.claimed, test.behind
		if err != nil || !next.Equal(want) {
			t.Errorf("%s: %+v, %v; want %+v", test.name, next, err, want)
		}
		if len(test.behind) == 0 && next.Behind != nil {
			t.Errorf("%s: an empty map of what is behind is not nil", test.name)
		}
		if fmt.Sprint(owned.Behind) != fmt.Sprint(unchanged) || fmt.Sprint(test.claim.Behind) != fmt.Sprint(was) {
			t.Errorf("%s: what was behind was modified", test.name)
		}
	}
}

// Of what takes no route, nothing is behind.
func TestClaimedForAll(t *testing.T) {
	p := bucket.Partition{Claimed: at(30, ""), Behind: places{postdate.AllOf(postdate.DefaultTenant): at(20, "")}}
	for route, want := range map[postdate.Route]bucket.Position{"": at(30, ""), "a:a": at(20, ""), "@b a:a": at(30, "")} {
		if got := p.ClaimedFor(route); got != want {
			t.Errorf("%q is claimed up to %v, want %v", route, got, want)
		}
	}
}

// What a claim takes: of all, of one route, and of all of a tenant.
func TestCovers(t *testing.T) {
	all := postdate.AllOf("b")
	behind := places{all: at(20, ""), "@b a:slow": at(10, ""), "a:slow": at(10, "")}
	for _, test := range []struct {
		only, route postdate.Route
		upTo        postdate.Time // it takes what waits before that
	}{
		{"", "a:a", postdate.Far}, {"", "a:slow", 10}, {"", "@b a:a", 20}, {"", "@b a:slow", 10}, {"", "@c a:slow", postdate.Far},
		{"a:slow", "a:slow", postdate.Far}, {"a:slow", "a:a", 0}, {"a:slow", "@b a:slow", 0}, {"@b a:slow", "@b a:slow", postdate.Far},
		{all, "@b a:a", postdate.Far}, {all, "@b a:slow", 10}, {all, "@c a:a", 0}, {all, "a:a", 0}, {all, "a:slow", 0},
		{postdate.AllOf(postdate.DefaultTenant), "a:a", postdate.Far}, {postdate.AllOf(postdate.DefaultTenant), "a:slow", 10},
		{postdate.AllOf(postdate.DefaultTenant), "@b a:a", 0},
	} {
		c := bucket.Claim{Only: test.only, Behind: behind}
		for _, when := range []postdate.Time{5, 10, 20, 1000} {
			if got := c.Covers(test.route, at(when, "m")); got != (when < test.upTo) {
				t.Errorf("a claim of only %q takes %q at %d: %t", test.only, test.route, when, got)
			}
		}
	}
}

func TestClaimIsRefused(t *testing.T) {
	released, _ := owned.Release(5)
	for _, test := range []struct {
		name          string
		p             bucket.Partition
		token, number uint64
		want          postdate.Kind
	}{
		{"with an old token", owned, 4, 10, postdate.KindFenced},
		{"with a token of the future", owned, 6, 10, postdate.KindFenced},
		{"after the bucket was given back", released, 5, 10, postdate.KindFenced},
		{"with an old token and late", owned, 4, 8, postdate.KindFenced},
		{"late", owned, 5, 8, postdate.KindConflict},
		{"very late", owned, 5, 0, postdate.KindConflict},
	} {
		for _, c := range []bucket.Claim{
			{Checkpoint: 55, To: at(160, "")}, {Checkpoint: 10, To: at(160, ""), Behind: places{"a:b": at(20, "")}},
			{To: at(100, ""), Only: "a:slow", Behind: owned.Behind}, {Checkpoint: 500},
		} {
			c.Token, c.Number = test.token, test.number
			next, err := test.p.Claim(c)
			if postdate.KindOf(err) != test.want || !next.Equal(test.p) {
				t.Errorf("%s: %+v, %v; want an error of kind %q and nothing changed", test.name, next, err, test.want)
			}
		}
	}
	next, err := owned.Claim(bucket.Claim{Token: 5, Number: 9, Checkpoint: 500, To: at(160, "")})
	if err != nil || !next.Equal(owned) {
		t.Errorf("the latest one again: %+v, %v; want nothing changed, and no error", next, err)
	}
	taken, _ := owned.Acquire(5, "b", "b/1")
	if taken.Claims != owned.Claims {
		t.Errorf("the next owner begins at claim %d, want %d: its first one would seem late", taken.Claims, owned.Claims)
	}
}

// A checkpoint beyond what is claimed would hide messages handed out. It may lie beyond what is
// claimed of a channel that is behind, as when a settled bucket is handed over.
func TestCheckpointBeyondClaimed(t *testing.T) {
	claimed := func(checkpoint postdate.Time, behind places) (text string) {
		defer func() {
			if r := recover(); r != nil {
				text = fmt.Sprint(r)
			}
		}()
		p := owned
		p.Claim(bucket.Claim{Token: 5, Number: 10, Checkpoint: checkpoint, To: at(110, ""), Behind: behind})
		return ""
	}
	for _, test := range []struct {
		checkpoint postdate.Time
		behind     places
		panics     bool
	}{
		{0, places{"a:slow": {}}, false},
		{119, nil, false},
		{120, nil, true},
		{121, nil, true},
		{79, places{"a:slow": at(80, ""), "a:down": at(90, "")}, false},
		{80, places{"a:slow": at(80, ""), "a:down": at(90, "")}, false},
		{120, places{"a:slow": at(80, "")}, true},
		{119, places{"a:slow": at(200, "")}, false},
	} {
		if text := claimed(test.checkpoint, test.behind); strings.Contains(text, "beyond claimed") != test.panics {
			t.Errorf("checkpoint %d with %v behind: panicked with %q, want a panic: %t", test.checkpoint, test.behind, text, test.panics)
		}
	}
}

func TestClaimedForAndInDoubt(t *testing.T) {
	p := bucket.Partition{Checkpoint: 50, Claimed: at(120, "m"), Behind: places{"a:slow": at(80, "m"), "a:down": {}}}
	for _, test := range []struct {
		route postdate.Route
		want  bucket.Position
	}{{"a:b", at(120, "m")}, {"a:slow", at(80, "m")}, {"a:down", bucket.Position{}}, {"", at(120, "m")}} {
		if got := p.ClaimedFor(test.route); got != test.want {
			t.Errorf("%q is claimed to %v, want %v", test.route, got, test.want)
		}
	}
	for _, test := range []struct {
		route postdate.Route
		at    bucket.Position
		want  bool
	}{
		{"a:b", at(50, "x"), false}, {"a:b", at(51, ""), true}, {"a:b", at(120, "m"), true}, {"a:b", at(120, "n"), false},
		{"a:slow", at(50, "x"), false}, {"a:slow", at(51, "a"), true}, {"a:slow", at(80, "m"), true}, {"a:slow", at(80, "n"), false},
		{"a:down", at(51, "a"), false},
	} {
		if got := p.InDoubt(test.route, test.at); got != test.want {
			t.Errorf("%q at %v is in doubt: %t, want %t", test.route, test.at, got, test.want)
		}
	}
}

func TestWithdrawable(t *testing.T) {
	p := bucket.Partition{Claimed: at(1000, "m"), Behind: places{"a:slow": at(500, "m")}}
	pending := func(t postdate.Time) postdate.State { return postdate.State{Status: postdate.Pending, AttemptTime: t} }
	for _, test := range []struct {
		name    string
		channel postdate.Channel
		id      string
		state   postdate.State
		want    bool
	}{
		{"beyond the claim", "a:b", "a", pending(1001), true},
		{"beyond the claim, within its millisecond", "a:b", "n", pending(1000), true},
		{"at the claim", "a:b", "m", pending(1000), false},
		{"before the claim, within its millisecond", "a:b", "l", pending(1000), false},
		{"behind the claim", "a:b", "m", pending(1), false},
		{"of a channel that is behind, beyond its place", "a:slow", "n", pending(500), true},
		{"of a channel that is behind, at its place", "a:slow", "m", pending(500), false},
		{"of a channel that is behind, before its place", "a:slow", "z", pending(499), false},
		{"waits for a retry", "a:b", "m", postdate.State{Status: postdate.Pending, AttemptTime: 2000, Attempts: 2}, true},
		{"parked", "a:b", "m", postdate.State{Status: postdate.Pending, AttemptTime: 1, Parked: true}, true},
		{"may have arrived", "a:b", "m", postdate.State{Status: postdate.Pending, AttemptTime: 2000, PossibleDuplicate: true}, false},
		{"may have arrived, parked", "a:b", "m", postdate.State{Status: postdate.Pending, Parked: true, PossibleDuplicate: true}, false},
		{"delivered", "a:b", "m", postdate.State{Status: postdate.Delivered, AttemptTime: 2000}, false},
		{"failed", "a:b", "m", postdate.State{Status: postdate.DeliveryFailed, AttemptTime: 2000}, false},
		{"cancelled", "a:b", "m", postdate.State{Status: postdate.Cancelled, AttemptTime: 2000}, false},
		{"delivered, and parked before", "a:b", "m", postdate.State{Status: postdate.Delivered, Parked: true}, false},
	} {
		key := postdate.Key{Tenant: postdate.DefaultTenant, ScheduleID: test.id}
		if got := p.Withdrawable(key, postdate.Route(test.channel), test.state); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestEqual(t *testing.T) {
	changes := map[string]func(p *bucket.Partition){
		"Bucket":     func(p *bucket.Partition) { p.Bucket++ },
		"Owner":      func(p *bucket.Partition) { p.Owner = "b" },
		"Token":      func(p *bucket.Partition) { p.Token++ },
		"Lease":      func(p *bucket.Partition) { p.Lease = "b/1" },
		"Claims":     func(p *bucket.Partition) { p.Claims++ },
		"Checkpoint": func(p *bucket.Partition) { p.Checkpoint++ },
		"Claimed":    func(p *bucket.Partition) { p.Claimed.ScheduleID = "n" },
		"Behind":     func(p *bucket.Partition) { p.Behind = nil },
	}
	fields := reflect.TypeFor[bucket.Partition]()
	for i := range fields.NumField() {
		q := owned
		changes[fields.Field(i).Name](&q) // panics for a field that this test does not know
		if owned.Equal(q) || q.Equal(owned) {
			t.Errorf("records with another %s are said to be equal", fields.Field(i).Name)
		}
	}
	q := owned
	if q.Behind = maps.Clone(owned.Behind); !owned.Equal(q) {
		t.Error("a copy is said to differ")
	}
	for _, behind := range []places{{"a:slow": at(80, "m")}, {"a:slow": at(80, "n"), "a:down": at(60, "")}, {"a:slow": at(80, "m"), "a:b": at(60, "")}} {
		if q.Behind = behind; owned.Equal(q) {
			t.Errorf("with %v behind, another record is said to be equal", behind)
		}
	}
	if p := (bucket.Partition{Behind: places{}}); !p.Equal(bucket.Partition{}) {
		t.Error("no channel behind, and none, are said to differ")
	}
}

// TestClaimsAtRandom compares random claims with a naive record that knows of each single place
// whether it is claimed.
func TestClaimsAtRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(testrun.Seed(t), 1))
	channels := []postdate.Route{"a:a", "a:b", "@b a:a", "@b a:b"}
	routes := append([]postdate.Route{postdate.AllOf(postdate.DefaultTenant), postdate.AllOf("b")}, channels...)
	var line []bucket.Position // all places where a message can wait
	for n := range 12 {
		line = append(line, at(postdate.Time(1+n/3), string(rune('a'+n%3))))
	}
	for range 200 {
		p, _ := bucket.Partition{}.Acquire(0, "a", "a/1")
		others := -1 // the last place that is claimed of the channels that are not behind
		for number := range uint64(30) {
			c := bucket.Claim{Token: 1, Number: number + 1, To: line[r.IntN(len(line))], Behind: places{}}
			to, said := slices.Index(line, c.To), map[postdate.Route]int{}
			for _, route := range routes {
				if r.IntN(2) == 0 {
					said[route] = r.IntN(len(line))
					if all, is := said[postdate.AllOf(route.Tenant())]; is {
						said[route] = min(said[route], all)
					}
					c.Behind[route] = line[said[route]]
				}
			}
			if only := routes[r.IntN(len(routes))]; r.IntN(2) == 0 {
				c.Only = only
				if place, ok := said[only]; ok {
					if all, is := said[postdate.AllOf(only.Tenant())]; is && !only.IsAll() {
						to = min(to, all)
					}
					said[only] = max(place, to)
				}
			} else {
				others = max(others, to)
			}
			next, err := p.Claim(c)
			if err != nil {
				t.Fatal(err)
			}
			p = next
			for _, channel := range channels {
				last, found := said[channel]
				if !found {
					last, found = said[postdate.AllOf(channel.Tenant())]
				}
				if !found || last > others {
					last = others
				}
				for i, place := range line {
					claimed := i <= last
					free := !claimed
					if channel.Tenant() == place.Tenant {
						key := postdate.Key{Tenant: place.Tenant, ScheduleID: place.ScheduleID}
						free = p.Withdrawable(key, channel, postdate.State{Status: postdate.Pending, AttemptTime: place.Time})
					}
					if free == claimed || p.InDoubt(channel, place) != claimed {
						t.Fatalf("after %+v the record is %+v: %s at %v can be taken back: %t, in doubt: %t", c, p, channel, place, free, p.InDoubt(channel, place))
					}
				}
				place, kept := p.Behind[channel]
				if all, is := p.Behind[postdate.AllOf(channel.Tenant())]; kept && (last == others || is && place == all) {
					t.Fatalf("%s has come up to the others, and is still behind: %+v", channel, p)
				}
			}
		}
	}
}
