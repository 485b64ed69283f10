package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/postdate/postdate/client"
)

const (
	liveEvery    = 250 * time.Millisecond
	liveMax      = 12 // messages at a time
	livePeak     = 3000
	livePeakIn   = 20 * time.Minute
	liveTimeout  = 10 * time.Second
	liveCancels  = 20 // one of so many is cancelled
	liveFailures = 60 // one of so many goes to a receiver that wants no more
)

// liveDemo keeps a node busy, so that its console has something to show.
type liveDemo struct {
	out    io.Writer
	client *client.Client
	hook   string // the URL of the demo's receiver of webhooks
	n      int    // messages so far
}

// run schedules messages until ctx ends.
func (d *liveDemo) run(ctx context.Context) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("cannot listen for webhooks: %w", err)
	}
	d.hook = "http://" + listener.Addr().String()
	receiver := &http.Server{Handler: http.HandlerFunc(d.receive), ReadHeaderTimeout: liveTimeout}
	go receiver.Serve(listener)
	defer receiver.Close()
	if err := d.prepare(ctx); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "  Its console, with messages that come and go:\n\n      %s/console\n\n"+
		"  Open it in a browser. Ctrl-C ends the demo.\n", d.client.Server())
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := d.step(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// receive is the demo's receiver of webhooks: one of its paths has moved on.
func (d *liveDemo) receive(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/former-customer" {
		http.Error(w, "this customer has left", http.StatusGone)
	}
}

// prepare schedules series and a peak.
func (d *liveDemo) prepare(ctx context.Context) error {
	messages := []client.Message{
		{ScheduleID: "heartbeat", Channel: "inbox:heartbeats", Payload: []byte(`{"from":"demo"}`),
			Recurrence: &client.Recurrence{Every: 10 * time.Second}},
		{ScheduleID: "invoices", Channel: "inbox:invoices", Payload: []byte(`{"run":"monthly"}`), Labels: []string{"billing"},
			Recurrence: &client.Recurrence{Cron: "30 2 1 * *", Timezone: "Europe/Berlin"}},
		{ScheduleID: "report", Channel: "inbox:reports", Payload: []byte(`{"report":"daily"}`),
			Recurrence: &client.Recurrence{Cron: "30 2 * * *", Timezone: "America/New_York"}},
	}
	peak := time.Now().Add(livePeakIn)
	for i := range livePeak {
		messages = append(messages, client.Message{ScheduleID: fmt.Sprintf("newsletter-%04d", i+1),
			Channel: "inbox:newsletter", ExecutionTime: peak.Add(time.Duration(i) * 10 * time.Millisecond),
			Payload: fmt.Appendf(nil, `{"subscriber":%d}`, i+1), Labels: []string{"newsletter"}})
	}
	results, err := d.client.ScheduleAll(ctx, messages)
	return firstError(results, err)
}

// step schedules some messages, and cancels few of them.
func (d *liveDemo) step(ctx context.Context) error {
	var messages []client.Message
	var cancelled []string
	for range 1 + rand.IntN(liveMax) {
		d.n++
		m := d.message()
		messages = append(messages, m)
		if rand.IntN(liveCancels) == 0 {
			cancelled = append(cancelled, m.ScheduleID)
		}
	}
	results, err := d.client.ScheduleAll(ctx, messages)
	if err := firstError(results, err); err != nil || len(cancelled) == 0 {
		return err
	}
	_, err = d.client.CancelAll(ctx, cancelled) // some are delivered already
	return err
}

// message is one message of the demo: most are due soon, some in hours.
func (d *liveDemo) message() client.Message {
	kinds := []string{"payment-timeout", "reminder", "order"}
	kind := kinds[rand.IntN(len(kinds))]
	horizons := []time.Duration{5 * time.Second, time.Minute, 10 * time.Minute, 3 * time.Hour, 36 * time.Hour}
	m := client.Message{ScheduleID: fmt.Sprintf("%s-%06d", kind, d.n), Channel: "inbox:" + kind + "s",
		Delay:   time.Duration(rand.Int64N(int64(horizons[rand.IntN(len(horizons))]))),
		Payload: fmt.Appendf(nil, `{"number":%d}`, d.n), Labels: []string{fmt.Sprintf("customer-%d", 1+rand.IntN(200))}}
	switch {
	case rand.IntN(liveFailures) == 0:
		m.Channel = d.hook + "/former-customer"
	case rand.IntN(5) == 0:
		m.Channel = d.hook + "/shop"
	}
	return m
}

// firstError is the error of a whole batch, or of the first message that was not scheduled.
func firstError(results []client.Result, err error) error {
	for i := range results {
		if err == nil {
			err = results[i].Err()
		}
	}
	return err
}
