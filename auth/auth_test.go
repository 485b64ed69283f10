package auth

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/benchtest"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

const (
	now      = postdate.Time(1_900_000_000_000)
	adminKey = "an-administrator-of-32-characters"
)

// hooked is a store in memory. A test acts between its calls, and makes them fail.
type hooked struct {
	*storetest.Mem
	afterKeys func()
	revoke    error // the outcome of RevokeKey; nothing is done
	reads     atomic.Int64
}

func (h *hooked) Keys(ctx context.Context) ([]store.APIKey, error) {
	h.reads.Add(1)
	all, err := h.Mem.Keys(ctx)
	if f := h.afterKeys; f != nil {
		h.afterKeys = nil
		f()
	}
	return all, err
}

func (h *hooked) RevokeKey(ctx context.Context, id string) error {
	if h.revoke != nil {
		return h.revoke
	}
	return h.Mem.RevokeKey(ctx, id)
}

// clocked is a keeper with a clock of its own.
type clocked struct {
	*Keeper
	at atomic.Int64
}

func keeper(t *testing.T, s store.Keys) *clocked {
	t.Helper()
	c := &clocked{}
	c.at.Store(int64(now))
	c.Keeper = NewKeeper(Config{Store: s, AdminKey: adminKey, Now: func() postdate.Time { return postdate.Time(c.at.Load()) }, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	c.look(t)
	return c
}

func (c *clocked) look(t *testing.T) {
	t.Helper()
	if err := c.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (c *clocked) create(t *testing.T, w Wish) (id, text string) {
	t.Helper()
	key, text, err := c.Create(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return key.ID, text
}

func (c *clocked) want(t *testing.T, header string, want Refusal) *Identity {
	t.Helper()
	i, got := c.Authenticate([]byte(header))
	if got != want || (got == Accepted) && i == nil {
		t.Errorf("%q: %d with %+v, want %d", header, got, i, want)
	}
	return i
}

var orders = Wish{Tenant: "acme", Scopes: []Scope{WriteMessages}, Channels: []string{"rabbitmq:acme-*"}}

func TestAuthenticate(t *testing.T) {
	k := keeper(t, storetest.NewMem(4))
	id, text := k.create(t, orders)
	if !regexp.MustCompile(`^pd_[a-z0-9]{12}_[a-zA-Z0-9]{43}$`).MatchString(text) || text[3:15] != id {
		t.Fatalf("the key %s is %q", id, text)
	}
	i := k.want(t, "Bearer "+text, Accepted)
	if i.KeyID != id || i.Credential() != "the key "+id || i.Tenant != "acme" || !i.Allows(WriteMessages) || i.Allows(ReadMessages) || i.Allows(Admin) ||
		!i.MayUse("rabbitmq:acme-1") || i.MayUse("rabbitmq:other") {
		t.Errorf("it is %+v", i)
	}
	k.want(t, "bearer  "+text+" ", Accepted) // RFC 9110: any case, and spaces
	admin := k.want(t, "Bearer "+adminKey, Accepted)
	if admin.Tenant != postdate.DefaultTenant || admin.KeyID != AdminKeyID || !admin.Allows(Operate) || !admin.MayUse("inbox:x") {
		t.Errorf("the administrator is %+v", admin)
	}
	other := text[:keyBytes-1] + map[bool]string{true: "b", false: "a"}[strings.HasSuffix(text, "a")]
	for header, want := range map[string]Refusal{
		"": NoKey, "Bearer": Malformed, "Bearer ": Malformed, "Basic " + text: Malformed, text: Malformed,
		"Bearer x": Unknown, "Bearer " + other: Unknown, "Bearer " + text[:keyBytes-1]: Unknown, "Bearer " + text + "x": Unknown,
		"Bearer " + strings.Replace(text, id, "aaaaaaaaaaaa", 1): Unknown, "Bearer " + adminKey[1:]: Unknown, "Bearer " + text + " " + text: Unknown,
		"Bearer " + text[:15] + "-" + text[16:]: Unknown,
	} {
		k.want(t, header, want)
	}
}

// No two keys are alike, and each character of them is drawn.
func TestKeysAreDrawn(t *testing.T) {
	seen := map[string]bool{}
	var all strings.Builder
	for range 2000 {
		s := draw(secretBytes, 62)
		if seen[s] {
			t.Fatal("a secret came twice")
		}
		seen[s] = true
		all.WriteString(s)
	}
	for _, c := range alphabet { // 86,000 characters: each is there some 1,387 times
		if n := strings.Count(all.String(), string(c)); n < 1100 || n > 1700 {
			t.Errorf("%c was drawn %d times of %d", c, n, all.Len())
		}
	}
}

func TestExpiry(t *testing.T) {
	k := keeper(t, storetest.NewMem(4))
	w := orders
	w.ExpiresAt = now + 1000
	id, text := k.create(t, w)
	k.at.Add(999)
	k.want(t, "Bearer "+text, Accepted)
	k.at.Add(1)
	if i := k.want(t, "Bearer "+text, Expired); i == nil || i.KeyID != id {
		t.Errorf("the expired key is %+v", i)
	}
}

// What one node makes or revokes holds there at once, and on another one after its next look.
func TestOtherNodesFollow(t *testing.T) {
	s := &hooked{Mem: storetest.NewMem(4)}
	a, b := keeper(t, s), keeper(t, s)
	id, text := a.create(t, orders)
	a.want(t, "Bearer "+text, Accepted)
	b.want(t, "Bearer "+text, Unknown)
	b.look(t)
	b.want(t, "Bearer "+text, Accepted)
	reads := s.reads.Load()
	b.look(t)
	if s.reads.Load() != reads {
		t.Error("the keys were read although nothing had changed")
	}
	if err := a.Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	a.want(t, "Bearer "+text, Unknown)
	a.look(t)
	a.want(t, "Bearer "+text, Unknown)
	b.look(t)
	b.want(t, "Bearer "+text, Unknown)
	if err := b.Revoke(t.Context(), id); postdate.KindOf(err) != postdate.KindNotFound {
		t.Errorf("revoked twice: %v", err)
	}
}

// A look that began before a key was revoked does not bring it back.
func TestAnOldLookBringsNoKeyBack(t *testing.T) {
	s := &hooked{Mem: storetest.NewMem(4)}
	k := keeper(t, s)
	id, text := k.create(t, orders)
	s.afterKeys = func() {
		if err := k.Revoke(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	k.look(t)
	k.want(t, "Bearer "+text, Unknown)
	k.look(t)
	k.want(t, "Bearer "+text, Unknown)
}

// A node refuses a key whose revocation has an unknown outcome, until the store tells.
func TestUnknownRevocation(t *testing.T) {
	s := &hooked{Mem: storetest.NewMem(4)}
	k := keeper(t, s)
	id, text := k.create(t, orders)
	k.look(t)
	s.revoke = postdate.E(postdate.KindUnknown, "no answer")
	if err := k.Revoke(t.Context(), id); postdate.KindOf(err) != postdate.KindUnknown {
		t.Fatal(err)
	}
	k.want(t, "Bearer "+text, Unknown)
	k.look(t)
	k.want(t, "Bearer "+text, Accepted) // it was not done
	s.revoke = postdate.E(postdate.KindUnavailable, "not now")
	if err := k.Revoke(t.Context(), id); postdate.KindOf(err) != postdate.KindUnavailable {
		t.Fatal(err)
	}
	k.want(t, "Bearer "+text, Accepted)
}

// The last use reaches the store, and never goes back, though a clock does.
func TestLastUse(t *testing.T) {
	k := keeper(t, storetest.NewMem(4))
	_, text := k.create(t, orders)
	want := func(at postdate.Time) {
		t.Helper()
		all, err := k.List(t.Context())
		if err != nil || len(all) != 1 || all[0].LastUsedAt != at {
			t.Errorf("the keys are %+v, %v; want a use at %s", all, err, at)
		}
	}
	want(0)
	k.want(t, "Bearer "+text, Accepted)
	want(now)
	k.at.Add(-60_000)
	k.want(t, "Bearer "+text, Accepted)
	want(now)
	k.at.Add(60_000 + 2000)
	k.look(t)
	k.want(t, "Bearer "+text, Accepted)
	want(now + 2000)
}

// Run looks at the store by itself, and notes the last uses when it ends.
func TestRun(t *testing.T) {
	s := storetest.NewMem(4)
	a, b := keeper(t, s), keeper(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { b.Run(ctx); close(ended) }()
	_, text := a.create(t, orders)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, refusal := b.Authenticate([]byte("Bearer " + text)); refusal == Accepted {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the other node never learned of the key")
		}
	}
	cancel()
	<-ended
	if all, err := s.Keys(t.Context()); err != nil || all[0].LastUsedAt != now {
		t.Errorf("after the end the keys are %+v, %v", all, err)
	}
}

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		pattern, s string
		want       bool
	}{
		{"inbox:a", "inbox:a", true}, {"inbox:a", "inbox:ab", false}, {"inbox:a", "inbox:", false}, {"*", "inbox:a", true}, {"*", "", true}, {"", "", true}, {"", "a", false},
		{"rabbitmq:acme-*", "rabbitmq:acme-", true}, {"rabbitmq:acme-*", "rabbitmq:acme-x/y.z", true}, {"rabbitmq:acme-*", "rabbitmq:acm", false}, {"rabbitmq:acme-*", "xrabbitmq:acme-1", false},
		{"https://a.example/*", "https://a.example/x/y?z", true}, {"https://a.example/*", "https://a.example.evil/", false},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"*b*", "abc", true}, {"*b*c", "abcd", false}, {"a**c", "ac", true}, {"*.a.*", "x.b.a.y", true}, {"*aab", "aaab", true}, {"?", "a", false}, {"[a]", "a", false},
	} {
		if got := Match(test.pattern, test.s); got != test.want {
			t.Errorf("%q on %q: %t", test.pattern, test.s, got)
		}
	}
}

// FuzzMatch compares with regular expressions.
func FuzzMatch(f *testing.F) {
	f.Add("rabbitmq:acme-*", "rabbitmq:acme-1")
	f.Add("*a*ab*", "xxabaab")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		quoted := strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `.*`)
		r, err := regexp.Compile(`(?s)\A` + quoted + `\z`)
		if err != nil { // not UTF-8
			return
		}
		if got, want := Match(pattern, s), r.MatchString(s); got != want {
			t.Errorf("%q on %q: %t, a regular expression says %t", pattern, s, got, want)
		}
	})
}

// FuzzAuthenticate: no header but the right one is accepted.
func FuzzAuthenticate(f *testing.F) {
	k := NewKeeper(Config{Store: storetest.NewMem(4), AdminKey: adminKey, Now: func() postdate.Time { return now }})
	_, text, err := k.Create(context.Background(), orders)
	if err != nil {
		f.Fatal(err)
	}
	for _, header := range []string{"", "Bearer " + text, "bearer " + text, "Bearer " + adminKey, "Basic x", "Bearer pd_a_b"} {
		f.Add([]byte(header))
	}
	f.Fuzz(func(t *testing.T, header []byte) {
		_, refusal := k.Authenticate(header)
		scheme, token, _ := strings.Cut(string(header), " ")
		token = strings.Trim(token, " ")
		right := strings.EqualFold(scheme, "bearer") && (token == text || token == adminKey)
		if (refusal == Accepted) != right {
			t.Errorf("%q: %d", header, refusal)
		}
	})
}

func TestAuthenticateTakesNoMemory(t *testing.T) {
	k := keeper(t, storetest.NewMem(4))
	_, text := k.create(t, orders)
	header := []byte("Bearer " + text)
	if n := testing.AllocsPerRun(100, func() { k.Authenticate(header) }); n != 0 {
		t.Errorf("it takes memory %v times", n)
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	k := NewKeeper(Config{Store: storetest.NewMem(4), AdminKey: adminKey, Now: func() postdate.Time { return now }})
	var text string
	for i := range 1000 {
		w := orders
		w.Tenant = fmt.Sprint("t-", i)
		var err error
		if _, text, err = k.Create(b.Context(), w); err != nil {
			b.Fatal(err)
		}
	}
	header := []byte("Bearer " + text)
	b.ReportAllocs()
	done := benchtest.Start(b)
	for b.Loop() {
		if _, refusal := k.Authenticate(header); refusal != Accepted {
			b.Fatal(refusal)
		}
	}
	done(b.N)
}

func TestCheckAdminKey(t *testing.T) {
	for text, want := range map[string]string{
		"": "0 characters", "short": "5 characters", strings.Repeat("x", 31): "31 characters", strings.Repeat("x", 257): "257",
		strings.Repeat("x y", 20): "space", strings.Repeat("ä", 20): "ASCII",
	} {
		err := CheckAdminKey(text)
		storetest.Refused(t, err, postdate.KindInvalid, want, "openssl rand")
		if text != "" && strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("it shows the key: %v", err)
		}
	}
	if err := CheckAdminKey(adminKey); err != nil {
		t.Error(err)
	}
}
