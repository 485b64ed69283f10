package membership

import (
	"bytes"
	"context"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// askers starts nodes a, b and c, which answer with their name, a colon and what was asked, many times.
func askers(t *testing.T, keys [][]byte, times int) (all [3]*Membership) {
	t.Helper()
	for i, name := range []string{"a", "b", "c"} {
		config := quick(t, name)
		if i > 0 {
			config.Seeds = []string{all[0].Address()}
		}
		config.Keys = keys
		config.OnQuestion = func(question []byte) []byte {
			return bytes.Repeat(append([]byte(name+":"), question...), times)
		}
		all[i] = start(t, config)
	}
	for _, m := range all {
		m.see(t, "a", "b", "c")
	}
	return all
}

// All others answer, with more than fits into a packet.
func TestAsk(t *testing.T) {
	const times = 50_000
	for name, keys := range map[string][][]byte{"open": nil, "encrypted": {bytes.Repeat([]byte("k"), 16)}} {
		t.Run(name, func(t *testing.T) {
			all := askers(t, keys, times)
			answers, missing := all[0].Ask(t.Context(), []byte("how?"))
			want := map[string][]byte{"b": bytes.Repeat([]byte("b:how?"), times), "c": bytes.Repeat([]byte("c:how?"), times)}
			if !maps.EqualFunc(answers, want, bytes.Equal) || len(missing) > 0 {
				t.Errorf("%d answers; missing are %v", len(answers), missing)
			}
			if len(all[0].asked) > 0 {
				t.Error("the question is kept")
			}
		})
	}
}

// Who cannot be reached is named, and the others' answers are there.
func TestAskWhoIsMissing(t *testing.T) {
	all := askers(t, nil, 1)
	all[0].Cut(func(address string) bool { return address == all[1].Address() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		answers, missing := all[0].Ask(ctx, []byte("?"))
		if string(answers["c"]) != "c:?" || len(answers) != 1 || !slices.Equal(missing, []string{"b"}) {
			t.Errorf("answers %q, missing %v", answers, missing)
		}
	}()
	all[0].eventually(t, "answered by c", func() bool {
		all[0].mu.Lock()
		defer all[0].mu.Unlock()
		for _, a := range all[0].asked {
			return a.answers["c"] != nil
		}
		return false
	})
	cancel()
	<-done
}

// A question whose packet is lost is asked again. It may be as long as the longest name of a channel, and more.
func TestAskIsRepeated(t *testing.T) {
	all := askers(t, nil, 1)
	var first atomic.Bool
	all[0].Cut(func(address string) bool { return address == all[1].Address() && first.CompareAndSwap(false, true) })
	answers, missing := all[0].Ask(t.Context(), bytes.Repeat([]byte("?"), 2300))
	if !first.Load() || len(answers) != 2 || len(missing) > 0 {
		t.Errorf("a packet was lost: %v; %d answers, missing %v", first.Load(), len(answers), missing)
	}
}

// A member that was silent until a deadline holds up no other question, until it answers again, however late.
func TestSilentMembersAreNotWaitedFor(t *testing.T) {
	all := askers(t, nil, 1)
	all[0].Cut(func(address string) bool { return address == all[1].Address() })
	all[0].eventually(t, "without the answer of b alone", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), askAgainAfter)
		defer cancel()
		_, missing := all[0].Ask(ctx, []byte("?"))
		return slices.Equal(missing, []string{"b"})
	})
	for range 3 { // without a deadline it would wait for ever
		if answers, missing := all[0].Ask(t.Context(), []byte("?")); string(answers["c"]) != "c:?" || !slices.Equal(missing, []string{"b"}) {
			t.Errorf("answers %q, missing %v", answers, missing)
		}
	}
	all[0].Cut(nil)
	all[0].eventually(t, "with the answer of b", func() bool {
		_, missing := all[0].Ask(t.Context(), []byte("?"))
		return len(missing) == 0
	})
	all[0].mu.Lock()
	defer all[0].mu.Unlock()
	if len(all[0].silent) > 0 {
		t.Errorf("silent are %v", all[0].silent)
	}
}

// What nobody asked for is dropped: other ids, other nodes, second answers, and packets that say nothing.
func TestAnswersThatNobodyWants(t *testing.T) {
	m := start(t, quick(t, "a"))
	a := &openQuestion{answers: map[string][]byte{"b": nil, "c": nil}, came: make(chan struct{}, 1)}
	m.asked[7] = a
	for _, q := range []envelope{{8, "b", []byte("no")}, {7, "d", []byte("no")}, {7, "b", []byte("yes")}, {7, "b", []byte("no")}} {
		m.receive(q.packet(packetAnswer))
	}
	if string(a.answers["b"]) != "yes" || len(a.answers) != 2 || !m.waitsFor(a, true) {
		t.Errorf("answers %q", a.answers)
	}
	m.receive(envelope{7, "c", nil}.packet(packetAnswer))
	if m.waitsFor(a, true) {
		t.Error("an empty answer is none")
	}
	m.receive([]byte{packetAnswer})
	m.receive(append([]byte{packetQuestion}, make([]byte, 7)...))
	if got := m.counted(t, "postdate_gossip_garbage_total"); got != 2 {
		t.Errorf("%v packets were not understood, want 2", got)
	}
}

// Many questions at once hold nothing up: those that cannot wait are dropped, and strangers' all.
func TestFloodOfQuestions(t *testing.T) {
	config, hold := quick(t, "a"), make(chan struct{})
	config.OnQuestion = func([]byte) []byte { <-hold; return nil }
	a := start(t, config)
	b := start(t, quick(t, "b", a))
	a.see(t, "a", "b")
	b.see(t, "a", "b")
	for range 10 * questionsMax {
		for _, from := range []string{"a", "b", "stranger"} {
			a.receive(envelope{1, from, nil}.packet(packetQuestion))
		}
	}
	a.mu.Lock()
	if n := len(a.waiting["b"]); len(a.waiting) != 1 || n < questionsMax-1 || n > questionsMax {
		t.Errorf("%d questions of b wait, of %d askers", n, len(a.waiting))
	}
	a.mu.Unlock()
	a.Shutdown() // before what hangs has returned
	close(hold)
}

// A member to which answers cannot be sent keeps no other from being answered.
func TestAnAskerThatIsHardToReach(t *testing.T) {
	all := askers(t, nil, 1)
	hold, held := make(chan struct{}), make(chan struct{}, 1)
	defer close(hold)
	all[0].Cut(func(address string) bool {
		if address != all[2].Address() || !strings.Contains(string(debug.Stack()), "DialAddressTimeout") {
			return false
		}
		select {
		case held <- struct{}{}:
		default:
		}
		<-hold
		return true
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		all[2].Ask(ctx, []byte("?"))
	}()
	<-held
	if answers, missing := all[1].Ask(t.Context(), []byte("?")); len(answers) != 2 {
		t.Errorf("answers %q, missing %v", answers, missing)
	}
	cancel()
	<-asked
}

func FuzzQuestion(f *testing.F) {
	f.Add([]byte{})
	f.Add(envelope{1 << 60, "node", []byte("what")}.packet(packetQuestion)[1:])
	f.Add(bytes.Repeat([]byte{0xff}, 24))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, ok := decodeEnvelope(b)
		if !ok {
			return
		}
		if again, ok := decodeEnvelope(q.packet(packetAnswer)[1:]); !ok || again.id != q.id ||
			again.from != q.from || !bytes.Equal(again.text, q.text) {
			t.Errorf("%v comes back as %v", q, again)
		}
	})
}
