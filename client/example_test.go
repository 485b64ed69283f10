package client_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/node"
)

// startNode starts a node with a store of its own.
func startNode() (address string, stop func()) {
	folder, err := os.MkdirTemp("", "postdate-client-")
	if err != nil {
		panic(err)
	}
	config := node.DefaultConfig()
	config.HTTP, config.NodeID = "127.0.0.1:0", "test"
	config.Store = "pebble:" + filepath.Join(folder, "store")
	config.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	n, err := node.Start(context.Background(), config)
	if err != nil {
		panic(err)
	}
	return "http://" + n.Addr(), func() {
		if err := n.Stop(context.Background()); err != nil {
			panic(err)
		}
		os.RemoveAll(folder)
	}
}

func Example() {
	address, stop := startNode()
	defer stop()
	ctx := context.Background()
	c, err := client.New(client.Config{Servers: []string{address}})
	if err != nil {
		panic(err)
	}
	defer c.Close()

	m, err := c.Schedule(ctx, client.Message{
		Channel: "inbox:example", Delay: 15 * time.Minute, Payload: []byte(`{"order": 42}`),
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(m.Status, m.Created)

	r, err := c.Get(ctx, m.ScheduleID)
	fmt.Printf("%s %s %v\n", r.Channel, r.Payload, err)

	// Nil is a guarantee: the message is never delivered.
	fmt.Println(c.Cancel(ctx, m.ScheduleID))

	// Output:
	// PENDING true
	// inbox:example {"order": 42} <nil>
	// <nil>
}

// With an id of your own, it is safe to schedule again, even after a crash of this program.
func ExampleClient_Schedule() {
	address, stop := startNode()
	defer stop()
	ctx := context.Background()
	c, _ := client.New(client.Config{Servers: []string{address}})
	defer c.Close()

	m := client.Message{
		ScheduleID: "order-42", Channel: "inbox:orders", ExecutionTime: time.Date(2037, 1, 31, 9, 30, 0, 0, time.UTC),
		Payload: []byte("pay"), ContentType: "text/plain", Headers: map[string]string{"kind": "reminder"},
	}
	for range 2 {
		s, err := c.Schedule(ctx, m)
		fmt.Println(s.ScheduleID, s.ExecutionTime, s.Created, err)
	}
	m.Payload = []byte("pay more")
	_, err := c.Schedule(ctx, m)
	fmt.Println(client.TypeOf(err) == client.Exists)

	// Output:
	// order-42 2037-01-31 09:30:00 +0000 UTC true <nil>
	// order-42 2037-01-31 09:30:00 +0000 UTC false <nil>
	// true
}

// A message can recur. Cancel ends the series.
func ExampleClient_Schedule_series() {
	address, stop := startNode()
	defer stop()
	ctx := context.Background()
	c, _ := client.New(client.Config{Servers: []string{address}})
	defer c.Close()

	s, err := c.Schedule(ctx, client.Message{
		ScheduleID: "report", Channel: "inbox:reports", Payload: []byte(`{"report": "sales"}`),
		Recurrence: &client.Recurrence{Cron: "0 9 * * MON-FRI", Timezone: "Europe/Berlin",
			Start: time.Date(2037, 1, 31, 0, 0, 0, 0, time.UTC)},
	})
	fmt.Println(s.Status, s.ExecutionTime, err) // the first occurrence
	fmt.Println(c.Cancel(ctx, "report"))

	// Output:
	// PENDING 2037-02-02 08:00:00 +0000 UTC <nil>
	// <nil>
}

// Put replaces a message, and Move changes its time.
func ExampleClient_Move() {
	address, stop := startNode()
	defer stop()
	ctx := context.Background()
	c, _ := client.New(client.Config{Servers: []string{address}})
	defer c.Close()

	at := time.Date(2037, 1, 31, 9, 30, 0, 0, time.UTC)
	s, err := c.Put(ctx, client.Message{ScheduleID: "invoice-7", Channel: "inbox:invoices", ExecutionTime: at, Payload: []byte("7")})
	fmt.Println(s.ExecutionTime, err)
	s, err = c.Move(ctx, "invoice-7", at.AddDate(0, 0, 1))
	fmt.Println(s.ExecutionTime, err)

	// Output:
	// 2037-01-31 09:30:00 +0000 UTC <nil>
	// 2037-02-01 09:30:00 +0000 UTC <nil>
}

// A series is paused, changed from its next occurrence on, and triggered out of turn.
func ExampleClient_Patch_series() {
	address, stop := startNode()
	defer stop()
	ctx := context.Background()
	c, _ := client.New(client.Config{Servers: []string{address}})
	defer c.Close()

	rule := client.Recurrence{Cron: "0 9 * * MON-FRI", Timezone: "Europe/Berlin", Start: time.Date(2037, 1, 31, 0, 0, 0, 0, time.UTC)}
	_, err := c.Schedule(ctx, client.Message{ScheduleID: "report", Channel: "inbox:reports", Payload: []byte("1"), Recurrence: &rule})
	fmt.Println(err)
	fmt.Println(c.PauseSeries(ctx, "report"))

	// Only what was read is changed.
	r, err := c.Get(ctx, "report")
	fmt.Println(r.Series.Paused, err)
	rule.Cron = "0 8 * * *"
	change := client.Change{Recurrence: &rule, Paused: new(bool)}
	_, err = c.Patch(ctx, "report", change, client.IfVersion(r.Version))
	fmt.Println(err)
	_, err = c.Patch(ctx, "report", change, client.IfVersion(r.Version))
	fmt.Println(client.TypeOf(err) == client.PreconditionFailed)

	r, err = c.Get(ctx, "report")
	fmt.Println(r.Series.Paused, r.Series.Next, err)
	extra, err := c.Trigger(ctx, "report") // a message of its own
	fmt.Println(extra.ScheduleID[:7], extra.Status, err)

	// Output:
	// <nil>
	// <nil>
	// true <nil>
	// <nil>
	// true
	// false 2037-01-31 07:00:00 +0000 UTC <nil>
	// report/ PENDING <nil>
}

// Cancel says whether it came in time.
func ExampleClient_Cancel() {
	address, stop := startNode()
	defer stop()
	ctx := context.Background()
	c, _ := client.New(client.Config{Servers: []string{address}})
	defer c.Close()

	s, err := c.Schedule(ctx, client.Message{Channel: "inbox:cancels", Delay: time.Hour, Payload: []byte("1")})
	if err != nil {
		panic(err)
	}
	switch err := c.Cancel(ctx, s.ScheduleID); {
	case err == nil:
		fmt.Println("it is never delivered")
	case client.TypeOf(err) == client.TooLate:
		fmt.Println("delivery may have begun")
	case client.MayBeDone(err):
		fmt.Println("nobody knows: cancel it again")
	}

	// Output:
	// it is never delivered
}

func ExampleClient_ScheduleAll() {
	address, stop := startNode()
	defer stop()
	ctx := context.Background()
	c, _ := client.New(client.Config{Servers: []string{address}})
	defer c.Close()

	results, err := c.ScheduleAll(ctx, []client.Message{
		{ScheduleID: "a", Channel: "inbox:all", Delay: time.Hour, Payload: []byte("1")},
		{ScheduleID: "b", Channel: "nowhere:x", Delay: time.Hour, Payload: []byte("2")},
	})
	if err != nil {
		panic(err)
	}
	for _, r := range results {
		fmt.Printf("%s: %q %q\n", r.ScheduleID, r.Status, client.TypeOf(r.Err()))
	}

	// Output:
	// a: "PENDING" ""
	// b: "" "urn:postdate:problem:invalid-field"
}

func ExampleClient_List() {
	address, stop := startNode()
	defer stop()
	ctx := context.Background()
	c, _ := client.New(client.Config{Servers: []string{address}})
	defer c.Close()

	for n := range 3 {
		at := time.Date(2037, 1, 1+n, 0, 0, 0, 0, time.UTC)
		if _, err := c.Schedule(ctx, client.Message{Channel: "inbox:list", ExecutionTime: at, Payload: fmt.Append(nil, n)}); err != nil {
			panic(err)
		}
	}
	for r, err := range c.List(ctx, client.Filter{Channel: "inbox:list", Status: client.Pending, From: time.Date(2037, 1, 2, 0, 0, 0, 0, time.UTC)}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(r.ExecutionTime, string(r.Payload))
	}

	// Output:
	// 2037-01-02 00:00:00 +0000 UTC 1
	// 2037-01-03 00:00:00 +0000 UTC 2
}

// A reader stores the cursor when it is done with a page, and continues from there.
func ExampleClient_Follow() {
	address, stop := startNode()
	defer stop()
	ctx := context.Background()
	c, _ := client.New(client.Config{Servers: []string{address}})
	defer c.Close()

	if _, err := c.Schedule(ctx, client.Message{Channel: "inbox:readers", ExecutionTime: time.Now(), Payload: []byte(`"hello"`)}); err != nil {
		panic(err)
	}
	cursor := ""
	for page, err := range c.Follow(ctx, "readers", cursor) {
		if err != nil {
			panic(err)
		}
		for _, m := range page.Messages {
			fmt.Println(string(m.Payload), m.Attempt)
		}
		cursor = page.NextCursor
		break
	}

	// Output:
	// "hello" 1
}

func ExampleClient_ChangeChannel() {
	address, stop := startNode()
	defer stop()
	ctx := context.Background()
	c, _ := client.New(client.Config{Servers: []string{address}})
	defer c.Close()

	rate := 50.0
	set, err := c.ChangeChannel(ctx, client.ChannelChange{Channel: "inbox:slow", MaxPerSecond: &rate})
	fmt.Println(set.MaxPerSecond, err)
	fmt.Println(c.Pause(ctx, "inbox:slow"))
	list, err := c.Channels(ctx)
	for _, ch := range list.Channels {
		if ch.Channel == "inbox:slow" {
			fmt.Println(ch.State, ch.MaxPerSecond, err)
		}
	}
	fmt.Println(c.Resume(ctx, "inbox:slow"))

	// Output:
	// 50 <nil>
	// <nil>
	// paused 50 <nil>
	// <nil>
}
