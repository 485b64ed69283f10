package storetest

import (
	"fmt"
	"reflect"
	"runtime"
	"sync"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

func inboxes() []check {
	return []check{
		{"messages come whole and in the order in which they were appended", func(x *trial) {
			all := []store.InboxMessage{letter("news", 3), letter("news", 1), letter("news", 2)}
			all[0].PossibleDuplicate, all[0].Encoding, all[0].Attempt = true, postdate.EncodingBase64, 4
			all[0].Payload, all[0].ContentType = []byte{0, 255, 10}, "application/octet-stream"
			all[0].Headers = []postdate.Header{{Name: "a", Value: "1"}, {Name: "ü", Value: "\n"}}
			all[1].Payload, all[1].Encoding = nil, postdate.EncodingText
			x.appendInbox(all...)
			more := letter("news", 0)
			x.appendInbox(more)
			got, _ := x.readInbox(tenant, "news", "", plenty)
			x.wantLetters(got, append(all, more)...)
		}},
		{"an inbox that nothing came to is empty, and its cursor goes on", func(x *trial) {
			got, next := x.readInbox(tenant, "news", "", plenty)
			x.wantLetters(got)
			x.appendInbox(letter("news", 1))
			got, _ = x.readInbox(tenant, "news", next, plenty)
			x.wantLetters(got, letter("news", 1))
		}},
		{"a page holds no more than its limit, and its cursor is where the next begins", inboxPages},
		{"a cursor can be read from again", func(x *trial) {
			x.appendInbox(letter("news", 1), letter("news", 2), letter("news", 3))
			_, next := x.readInbox(tenant, "news", "", 1)
			for range 3 {
				got, _ := x.readInbox(tenant, "news", next, plenty)
				x.wantLetters(got, letter("news", 2), letter("news", 3))
			}
		}},
		{"every name of every tenant is an inbox of its own", inboxNames},
		{"a cursor that is none is KindInvalid", func(x *trial) {
			x.appendInbox(letter("news", 1))
			_, next := x.readInbox(tenant, "news", "", 1)
			for _, bad := range []string{"x", "-1", " ", "\x00", "9999999999999999999999", "ä", next + "x", next + " ",
				"x" + next} {
				_, _, err := x.store.ReadInbox(x.ctx, tenant, "news", bad, 1)
				x.wantKind(err, postdate.KindInvalid)
			}
		}},
		{"who follows the cursor while many append sees every message exactly once", inboxRace},
	}
}

// letter is the n-th message of an inbox.
func letter(inbox string, n int) store.InboxMessage {
	return store.InboxMessage{
		Tenant: tenant, Inbox: inbox, ScheduleID: fmt.Sprint("letter-", n), ExecutionTime: t0, DeliveredAt: t0 + 2,
		Attempt: 1, ContentType: "application/json", Payload: fmt.Append(nil, n),
	}
}

func (x *trial) appendInbox(messages ...store.InboxMessage) {
	x.Helper()
	if err := x.store.AppendInbox(x.ctx, messages); err != nil {
		x.Fatalf("AppendInbox: %v", err)
	}
}

func (x *trial) readInbox(tenant, name, after string, limit int) ([]store.InboxMessage, string) {
	x.Helper()
	messages, next, err := x.store.ReadInbox(x.ctx, tenant, name, after, limit)
	if err != nil {
		x.Fatalf("ReadInbox after %q: %v", after, err)
	}
	if len(messages) > limit {
		x.Errorf("ReadInbox of at most %d returned %d messages", limit, len(messages))
	}
	return messages, next
}

func (x *trial) wantLetters(got []store.InboxMessage, want ...store.InboxMessage) {
	x.Helper()
	if len(got) != len(want) {
		x.Errorf("the inbox gave %d messages, want %d", len(got), len(want))
		return
	}
	for i := range want {
		if !reflect.DeepEqual(normalLetter(got[i]), normalLetter(want[i])) {
			x.Errorf("inbox message %d is %+v, want %+v", i, got[i], want[i])
		}
	}
}

func normalLetter(m store.InboxMessage) store.InboxMessage {
	if len(m.Payload) == 0 {
		m.Payload = nil
	}
	if len(m.Headers) == 0 {
		m.Headers = nil
	}
	m.Place = store.InboxPlace{}
	return m
}

func inboxPages(x *trial) {
	var all []store.InboxMessage
	for i := range 25 {
		all = append(all, letter("news", i))
	}
	x.appendInbox(all[:20]...)
	x.appendInbox(all[20:]...)
	for _, limit := range []int{1, 4, 24, 25, 26} {
		var got []store.InboxMessage
		cursor := ""
		for range pageMax {
			page, next := x.readInbox(tenant, "news", cursor, limit)
			if len(page) == 0 {
				break
			}
			got, cursor = append(got, page...), next
		}
		x.wantLetters(got, all...)
	}
}

func inboxNames(x *trial) {
	names := []string{"a", "ab", "abc", "b"}
	tenants := []string{"tenant", "tenant-a"}
	var all []store.InboxMessage
	for i, name := range names {
		for j, t := range tenants {
			m := letter(name, 10*i+j)
			m.Tenant = t
			all = append(all, m)
		}
	}
	x.appendInbox(all...) // one call, many inboxes
	for i, name := range names {
		for j, t := range tenants {
			got, next := x.readInbox(t, name, "", plenty)
			x.wantLetters(got, all[2*i+j])
			got, _ = x.readInbox(t, name, next, plenty)
			x.wantLetters(got)
		}
	}
	got, _ := x.readInbox("tenant-b", "a", "", plenty)
	x.wantLetters(got)
}

func inboxRace(x *trial) {
	const appenders, calls, perCall = 6, 40, 3
	var group sync.WaitGroup
	for a := range appenders {
		group.Go(func() {
			for c := range calls {
				var batch []store.InboxMessage
				for i := range perCall {
					batch = append(batch, letter("news", (a*calls+c)*perCall+i))
				}
				if err := x.store.AppendInbox(x.ctx, batch); err != nil {
					x.Errorf("AppendInbox: %v", err)
				}
			}
		})
	}
	seen := x.follow("news", 5, group.Wait)
	for n := range appenders * calls * perCall {
		if id := letter("news", n).ScheduleID; seen[id] != 1 {
			x.Errorf("%s was read %d times, want once", id, seen[id])
		}
	}
}

// follow reads an inbox from cursor to cursor, until the writers have ended and all is read, and counts
// how often it sees each message.
func (x *trial) follow(inbox string, limit int, writers func()) (seen map[string]int) {
	seen = map[string]int{}
	done := make(chan struct{})
	go func() { writers(); close(done) }()
	cursor := ""
	for ended := false; ; {
		page, next := x.readInbox(tenant, inbox, cursor, limit)
		for _, m := range page {
			seen[m.ScheduleID]++
		}
		cursor = next
		if len(page) > 0 {
			continue
		}
		if ended {
			return seen
		}
		select {
		case <-done:
			ended = true // one more round finds what came since the empty page
		default:
			runtime.Gosched()
		}
	}
}
