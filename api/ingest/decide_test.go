package ingest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
)

const now postdate.Time = 1_800_000_000_000

func intake() *api.Intake {
	return &api.Intake{
		Buckets: 8, Tenant: postdate.DefaultTenant, PayloadBytesMax: 1000,
		CheckChannel: func(c postdate.Channel) error {
			if c.Broker() != "rabbitmq" && c.Broker() != "kafka" {
				return postdate.E(postdate.KindInvalid, "there is no broker %s", c.Broker())
			}
			return nil
		},
	}
}

func headers(pairs ...string) (hs []postdate.Header) {
	for i := 0; i < len(pairs); i += 2 {
		hs = append(hs, postdate.Header{Name: pairs[i], Value: pairs[i+1]})
	}
	return hs
}

// show returns a decision in a short form: action, identity, id, channel, time from
// now, headers, priority if it is not medium, and payload.
func show(d Decision) string {
	if d.Action == Refuse {
		return "bad: " + d.Reason
	}
	m := &d.Message
	s := fmt.Sprintf("%s %s %s", []string{"", "schedule", "upsert", "cancel"}[d.Action], []string{"", "given", "borrowed", "placed", "fresh"}[d.Identity], m.ScheduleID)
	if d.Action == Cancel {
		return s
	}
	s += fmt.Sprintf(" %s %s", m.Channel, m.ExecutionTime.Sub(now))
	for _, h := range m.Headers {
		s += fmt.Sprintf(" %s=%s", h.Name, h.Value)
	}
	if m.Priority != postdate.PriorityMedium {
		s += " " + m.Priority.String()
	}
	if m.MayRepeat {
		s += " may-repeat"
	}
	return s + fmt.Sprintf(" %q", m.Payload)
}

func TestDecide(t *testing.T) {
	const channel = "rabbitmq:orders"
	back := headers("postdate-attempt", "1", "postdate-schedule-id", "s", "postdate-execution-time", "2020-01-01T00:00:00Z", "postdate-possible-duplicate", "true")
	place := Place{"t", 3, 17}
	for _, test := range []struct {
		name string
		c    Command
		want string
	}{
		{"delay", Command{Body: []byte("hi"), Headers: headers("x-delay", "1500", "a", "b"), Channel: channel}, `schedule fresh new rabbitmq:orders 1.5s a=b x-delay=-1500 "hi"`},
		{"no delay at all", Command{Headers: headers("x-delay", "0"), Channel: channel}, `schedule fresh new rabbitmq:orders 0s x-delay=0 ""`},
		{"a delay that was", Command{Headers: headers("x-delay", "-5"), Channel: channel}, `schedule fresh new rabbitmq:orders 0s x-delay=5 ""`},
		{"a delay with a fraction", Command{Headers: headers("x-delay", "12.9"), Channel: channel}, `schedule fresh new rabbitmq:orders 12ms x-delay=-12 ""`},
		{"counted from when it was sent", Command{Headers: headers("x-delay", "1500"), Channel: channel, Sent: now - 1000}, `schedule fresh new rabbitmq:orders 500ms x-delay=-1500 ""`},
		{"sent in the future", Command{Headers: headers("x-delay", "1500"), Channel: channel, Sent: now + 1000}, `schedule fresh new rabbitmq:orders 1.5s x-delay=-1500 ""`},
		{"a time", Command{Headers: headers("postdate-execution-time", "2027-01-15T08:00:01Z"), Channel: channel}, `schedule fresh new rabbitmq:orders 1s ""`},
		{"an id in a header", Command{Headers: headers("x-delay", "1", "postdate-schedule-id", "s"), MessageID: "m", Channel: channel}, `schedule given s rabbitmq:orders 1ms x-delay=-1 ""`},
		{"a message id", Command{Headers: headers("x-delay", "1"), MessageID: "m", Channel: channel, Redelivered: true, Position: "p"}, `schedule borrowed m rabbitmq:orders 1ms x-delay=-1 ""`},
		{"a message id that is no id", Command{Headers: headers("x-delay", "1"), MessageID: "m/1", Channel: channel}, `schedule borrowed m-0b203ec73c7ce729a75f7f51a8caf41e rabbitmq:orders 1ms x-delay=-1 ""`},
		{"a place", Command{Headers: headers("x-delay", "1"), Position: "p", Channel: channel, Redelivered: true}, `schedule placed p rabbitmq:orders 1ms x-delay=-1 ""`},
		{"nothing names it", Command{Headers: headers("x-delay", "1"), Channel: channel, Redelivered: true}, `schedule fresh new rabbitmq:orders 1ms x-delay=-1 may-repeat ""`},
		{"a channel in a header", Command{Headers: headers("x-delay", "1", "postdate-channel", "kafka:t"), Channel: channel}, `schedule fresh new kafka:t 1ms x-delay=-1 ""`},
		{"properties survive", Command{Headers: headers("x-delay", "1", "amqp-type", "old", "postdate-rejected-reason", "x"), Properties: headers("amqp-type", "t"), Channel: channel}, `schedule fresh new rabbitmq:orders 1ms amqp-type=t x-delay=-1 ""`},
		{"a message id that is a header", Command{Headers: headers("x-delay", "1", "amqp-message-id", "old"), Channel: channel}, `schedule fresh new rabbitmq:orders 1ms x-delay=-1 ""`},
		{"a message id that is a property", Command{Headers: headers("x-delay", "1", "amqp-message-id", "old"), Properties: headers("amqp-message-id", "m"), MessageID: "m", Channel: channel}, `schedule borrowed m rabbitmq:orders 1ms amqp-message-id=m x-delay=-1 ""`},
		{"sent back", Command{Headers: append(headers("x-delay", "9"), back...), MessageID: "s", Channel: channel}, `schedule borrowed r-1f9021141082431408ff280f0408ac4f rabbitmq:orders 9ms x-delay=-9 ""`},
		{"sent back into a topic", Command{Headers: append(headers("x-delay", "9"), back...), MessageID: "s", Position: "p", Channel: channel}, `schedule placed p rabbitmq:orders 9ms x-delay=-9 ""`},
		{"round in circles", Command{Headers: append(headers("x-delay", "-9"), back...), MessageID: "s", Channel: channel}, `bad: this is a delivery of Postdate's own`},
		{"JSON", Command{Body: []byte(` {"delay":"1s","payload":1}`), Channel: channel}, `schedule fresh new rabbitmq:orders 1s "1"`},
		{"JSON with a priority", Command{Body: []byte(`{"delay":"1s","payload":1,"priority":"high"}`), Channel: channel}, `schedule fresh new rabbitmq:orders 1s high "1"`},
		{"JSON, named", Command{Body: []byte(`{"scheduleId":"s","channel":"kafka:t","delay":"1s","payload":1}`), Channel: channel, MessageID: "m"}, `schedule given s kafka:t 1s "1"`},
		{"JSON, named in a header", Command{Body: []byte(`{"delay":"1s","payload":1}`), Headers: headers("postdate-schedule-id", "s"), Channel: channel}, `schedule given s rabbitmq:orders 1s "1"`},
		{"JSON, named twice", Command{Body: []byte(`{"scheduleId":"s","delay":"1s","payload":1}`), Headers: headers("postdate-schedule-id", "x"), Channel: channel}, `bad: the header postdate-schedule-id is "x"`},
		{"JSON in a record", Command{Body: []byte(`{"scheduleId":"s","delay":"1s","payload":1}`), Channel: channel, Records: true, Place: place}, `upsert given s rabbitmq:orders 1s postdate-source=t/3/17 "1"`},
		{"JSON in a record, unnamed", Command{Body: []byte(`{"delay":"1s","payload":1}`), Channel: channel, Records: true, Place: place, Position: "p"}, `schedule placed p rabbitmq:orders 1s postdate-source=t/3/17 "1"`},
		{"JSON with an error", Command{Body: []byte(`{"delay":"1s","payload":1,"chanel":"x"}`), Channel: channel}, `bad: the field "chanel" is not known: did you mean "channel"? (at /chanel)`},
		{"no value", Command{Records: true, Key: "s"}, "cancel given s"},
		{"no value and no key", Command{Records: true}, "bad: a record without a value cancels the schedule whose id is its key, and this key is none: scheduleId is empty"},
		{"no value and a delay", Command{Records: true, Key: "s", Headers: headers("x-delay", "1")}, "bad: a record without a value cancels, and one that says when schedules"},
		{"an empty value", Command{Records: true, Key: "k", Body: []byte{}, Headers: headers("x-delay", "1"), Position: "p", Place: place, Channel: channel}, `schedule placed p rabbitmq:orders 1ms postdate-source=t/3/17 x-delay=-1 ""`},
		{"says nothing", Command{Body: []byte("hi"), Channel: channel}, "bad: it does not say when"},
		{"both times", Command{Headers: headers("x-delay", "1", "postdate-execution-time", "2027-01-15T08:00:01Z"), Channel: channel}, "bad: the headers x-delay and postdate-execution-time exclude each other"},
		{"a delay twice", Command{Headers: headers("x-delay", "1", "x-delay", "2"), Channel: channel}, "bad: header x-delay stands twice"},
		{"a header twice", Command{Headers: headers("x-delay", "1", "a", "1", "a", "2"), Channel: channel}, "bad: header a stands twice"},
		{"a delay that is none", Command{Headers: headers("x-delay", "soon"), Channel: channel}, `bad: x-delay "soon" is no number`},
		{"a delay beyond bounds", Command{Headers: headers("x-delay", "3162240000001"), Channel: channel}, `bad: x-delay 3162240000001 is too long`},
		{"a time that is none", Command{Headers: headers("postdate-execution-time", "2027-01-15T08:00:01"), Channel: channel}, `bad: header postdate-execution-time: time "2027-01-15T08:00:01" has no zone`},
		{"no channel", Command{Headers: headers("x-delay", "1")}, "bad: it does not say where to"},
		{"an unknown channel", Command{Headers: headers("x-delay", "1"), Channel: "nats:x"}, "bad: there is no broker nats"},
		{"pinned, and a header", Command{Headers: headers("x-delay", "1", "postdate-channel", "kafka:t"), Channel: channel, Pinned: true}, `schedule fresh new rabbitmq:orders 1ms x-delay=-1 ""`},
		{"pinned, and a body", Command{Body: []byte(`{"channel":"kafka:t","delay":"1s","payload":1}`), Channel: channel, Pinned: true}, `schedule fresh new rabbitmq:orders 1s "1"`},
		{"pinned, and a failure channel", Command{Body: []byte(`{"failureChannel":"kafka:t","delay":"1s","payload":1}`), Channel: channel, Pinned: true}, `schedule fresh new rabbitmq:orders 1s "1"`},
		{"pinned, and a body that names nothing of use", Command{Body: []byte(`{"channel":"?","delay":"1s","payload":1}`), Channel: channel, Pinned: true}, `schedule fresh new rabbitmq:orders 1s "1"`},
		{"pinned, and both", Command{Body: []byte(`{"channel":"kafka:t","delay":"1s","payload":1}`), Headers: headers("Postdate-Channel", "kafka:u"), Channel: channel, Pinned: true, Records: true, Position: "p", Place: place}, `schedule placed p rabbitmq:orders 1s postdate-source=t/3/17 "1"`},
		{"pinned to nothing, and a header", Command{Headers: headers("x-delay", "1", "postdate-channel", "kafka:t"), Pinned: true}, "bad: it does not say where to: give it a key"},
		{"pinned to nothing, and a body", Command{Body: []byte(`{"channel":"kafka:t","delay":"1s","payload":1}`), Pinned: true}, "bad: it does not say where to: give it a key"},
		{"a reserved header", Command{Headers: headers("x-delay", "1", "postdate-color", "red"), Channel: channel}, "bad: header postdate-color begins with postdate-"},
		{"an id that is none", Command{Headers: headers("x-delay", "1", "postdate-schedule-id", "a b"), Channel: channel}, `bad: scheduleId "a b" has a forbidden character`},
		{"too large", Command{Body: make([]byte, 1001), Headers: headers("x-delay", "1"), Channel: channel}, "bad: the body is 1001 bytes long"},
		{"expired", Command{Body: []byte(`{"delay":"1h","expiresAt":"2027-01-15T08:00:01Z","payload":1}`), Channel: channel}, "bad: expiresAt 2027-01-15T08:00:01.000Z must lie after"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := show(Decide(intake(), &test.c, now, "new"))
			if bad := strings.HasPrefix(test.want, "bad"); got != test.want && !(bad && strings.HasPrefix(got, test.want)) {
				t.Errorf("\n got %s\nwant %s", got, test.want)
			}
		})
	}
}

// A redelivered message is still the same message, whatever the broker adds to it.
func TestDigestIsThatOfTheMessage(t *testing.T) {
	first := Command{Body: []byte("x"), Headers: headers("x-delay", "100"), MessageID: "m", Channel: "rabbitmq:q"}
	again := first
	again.Redelivered = true
	a, b := Decide(intake(), &first, now, "1"), Decide(intake(), &again, now+5000, "2")
	if a.Message.Digest != b.Message.Digest || a.Message.Key != b.Message.Key {
		t.Errorf("%+v\n%+v", a, b)
	}
	again.Headers = headers("x-delay", "101")
	if c := Decide(intake(), &again, now, "2"); c.Message.Digest == a.Message.Digest {
		t.Error("another delay is the same message")
	}
}

func TestTemplates(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"rabbitmq:orders/{routing-key}", "rabbitmq:orders/a.b"}, {"rabbitmq:q", "rabbitmq:q"}, {"", ""},
		{"{routing-key}", "a.b"}, {"rabbitmq:{key}", "bad"}, {"orders", "bad"}, {"nats:q", "bad"},
	} {
		got := "bad"
		if tpl, err := ParseTemplate(test.text, "{routing-key}", intake().CheckChannel); err == nil {
			got = tpl.With("a.b")
		} else if test.want != "bad" {
			t.Error(err)
		}
		if got != test.want {
			t.Errorf("%q: got %s, want %s", test.text, got, test.want)
		}
	}
}

// The host, or at least the broker, of a pin is the operator's choice.
func TestPins(t *testing.T) {
	for text, ok := range map[string]bool{
		"!rabbitmq:q": true, "!rabbitmq:{key}": true, "!kafka:out-{key}": true, "!inbox:{key}": true, "!https://h.example/{key}": true, "!https://h.example/": true,
		"!": false, "!orders": false, "!{key}": false, "!{key}:q": false, "!rabbit{key}:q": false, "!https:{key}": false, "!https:/{key}": false,
		"!https://{key}/a": false, "!https://h.example{key}/": false, "!https://h.example:{key}/": false, "!https://{key}@h.example/": false,
	} {
		tpl, err := ParseTemplate(text, "{key}", nil)
		if ok != (err == nil) || ok && !tpl.Pinned() {
			t.Errorf("%s: %v, %v", text, tpl, err)
		}
	}
	if tpl, err := ParseTemplate("rabbitmq:!q", "{key}", nil); err != nil || tpl.Pinned() || tpl.With("") != "rabbitmq:!q" {
		t.Error(tpl, err)
	}
}

// FuzzPin: whatever a sender writes into the place of the placeholder, a pinned channel stays with
// its broker, and a URL with its host.
func FuzzPin(f *testing.F) {
	f.Add("!rabbitmq:{key}", "kafka:t", "x")
	f.Add("!https://h.example/{key}", "@evil.example/", "../..//evil.example")
	f.Add("!https://h{key}/{key}", ".evil.example", "")
	f.Fuzz(func(t *testing.T, text, one, other string) {
		tpl, err := ParseTemplate(text, "{key}", nil)
		if err != nil || !tpl.Pinned() {
			return
		}
		var seen []string
		for _, value := range []string{one, other, "x"} {
			channel, err := postdate.ParseChannel(tpl.With(value))
			if err != nil {
				continue
			}
			to := channel.Broker()
			if to == "http" || to == "https" {
				u, err := url.Parse(string(channel))
				if err != nil {
					continue
				}
				to += " " + u.Host
			}
			seen = append(seen, to)
		}
		if len(slices.Compact(seen)) > 1 {
			t.Fatalf("%s leads to %q", text, seen)
		}
	})
}

// FuzzCommand: any command gets a decision, scheduled messages fulfil the root
// package's rules, and the same command always gets the same decision.
func FuzzCommand(f *testing.F) {
	f.Add([]byte(`{"scheduleId":"s","delay":"1s","payload":{"a":1}}`), "x-delay 100 postdate-schedule-id a", "k", uint8(0))
	f.Add([]byte("text"), "x-delay 1e3 a b", "", uint8(1))
	f.Add([]byte(nil), "postdate-execution-time 2027-01-15T08:00:01Z postdate-channel rabbitmq:x/y", "key", uint8(2))
	f.Add([]byte("\xff"), "x-delay 5 postdate-attempt 1 postdate-schedule-id s", "m/1", uint8(7))
	f.Fuzz(func(t *testing.T, body []byte, pairs, key string, bits uint8) {
		words := strings.Split(pairs, " ")
		c := Command{Body: body, Headers: headers(words[:len(words)&^1]...), Channel: "rabbitmq:q", Records: bits&1 != 0, Redelivered: bits&2 != 0}
		if c.Records {
			c.Key, c.Position, c.Place = key, "t:0:1", Place{"t", 0, 1}
		} else {
			c.MessageID, c.Properties = key, headers("amqp-type", "t")
		}
		d := Decide(intake(), &c, now, "fresh")
		if again := Decide(intake(), &c, now, "fresh"); show(again) != show(d) {
			t.Fatalf("decided as %s and then as %s", show(d), show(again))
		}
		switch d.Action {
		case Refuse:
			if d.Reason == "" {
				t.Fatal("refused without a word")
			}
			return
		case Cancel, Schedule, Upsert:
			if err := postdate.CheckScheduleID(d.Message.ScheduleID); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("%+v", d)
		}
		if m := &d.Message; d.Action != Cancel {
			if _, err := postdate.ParseChannel(string(m.Channel)); err != nil {
				t.Fatal(err)
			}
			if m.ExecutionTime < postdate.EarliestTime || m.Digest == (postdate.Digest{}) || len(m.Payload) > 1000 {
				t.Fatalf("%+v", m)
			}
			if !slices.IsSortedFunc(m.Headers, func(a, b postdate.Header) int { return strings.Compare(a.Name, b.Name) }) {
				t.Fatalf("headers are not sorted: %v", m.Headers)
			}
			if m.Encoding == postdate.EncodingJSON && !json.Valid(m.Payload) {
				t.Fatalf("%q is to be shown as JSON", m.Payload)
			}
		}
	})
}

// FuzzDue: a message is never due before the time that it gives.
func FuzzDue(f *testing.F) {
	f.Add("100", "")
	f.Add("9223372036854775807", "")
	f.Add("-1e400", "2027-01-15T08:00:01.0001+01:00")
	f.Fuzz(func(t *testing.T, delay, at string) {
		d := Decide(intake(), &Command{Headers: headers("x-delay", delay), Channel: "rabbitmq:q"}, now, "fresh")
		var ms int64
		if _, err := fmt.Sscanf(delay, "%d", &ms); d.Action == Schedule && err == nil && fmt.Sprint(ms) == delay {
			if want := now + postdate.Time(max(ms, 0)); d.Message.ExecutionTime != want {
				t.Fatalf("x-delay %s: due at %s, want %s", delay, d.Message.ExecutionTime, want)
			}
		}
		if d.Action == Schedule && (d.Message.ExecutionTime < now || d.Message.ExecutionTime > now.Add(postdate.DelayMax)) {
			t.Fatalf("x-delay %s: due at %s", delay, d.Message.ExecutionTime)
		}
		d = Decide(intake(), &Command{Headers: headers("postdate-execution-time", at), Channel: "rabbitmq:q"}, now, "fresh")
		if std, err := time.Parse(time.RFC3339Nano, at); d.Action == Schedule && (err != nil || d.Message.ExecutionTime.Std().Before(std)) {
			t.Fatalf("%s is due at %s (%v)", at, d.Message.ExecutionTime, err)
		}
	})
}
