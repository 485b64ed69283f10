package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
)

// A node understands every field of a recurrence.
func TestPreview(t *testing.T) {
	c, ctx := open(t, client.Config{Servers: []string{server(t)}}), patient(t)
	at := time.Date(2037, 3, 29, 0, 0, 0, 0, time.UTC) // the clock in Berlin goes from 02:00 to 03:00
	for _, test := range []struct {
		r    client.Recurrence
		want []time.Time
	}{
		{client.Recurrence{
			Cron: "30 1,2 * * *", Timezone: "Europe/Berlin", Start: at.Add(45 * time.Minute), End: at.AddDate(0, 0, 1), Gap: "after",
			Overlap: "both", Jitter: time.Minute, Misfire: "fire_all", MisfireAfter: time.Hour, MaxRuns: 3,
		}, []time.Time{at.Add(time.Hour), at.Add(23*time.Hour + 30*time.Minute)}},
		{client.Recurrence{Every: 100 * time.Millisecond, Anchor: at.Add(7 * time.Millisecond), MaxRuns: 2},
			[]time.Time{at.Add(7 * time.Millisecond), at.Add(107 * time.Millisecond)}},
	} {
		got, err := c.Preview(ctx, test.r, at, 5)
		if err != nil || len(got) != len(test.want) {
			t.Fatalf("%+v: %v %v", test.r, got, err)
		}
		for i, o := range got {
			if !o.Time.Equal(test.want[i]) {
				t.Errorf("%+v: %s, want %s", test.r, o.Time, test.want[i])
			}
		}
	}
	before := time.Now().Truncate(time.Millisecond)
	all, err := c.Preview(ctx, client.Recurrence{Every: time.Hour}, time.Time{}, 0)
	if err != nil || len(all) != 10 || all[0].Time.Before(before.Add(time.Hour)) || time.Until(all[0].Time) > time.Hour {
		t.Errorf("from now on: %v %v", all, err)
	}
	_, err = c.Preview(ctx, client.Recurrence{Cron: "@daily"}, at, 1)
	if problem := (*client.Problem)(nil); !errors.As(err, &problem) || problem.Pointer != "/recurrence" {
		t.Errorf("without a time zone: %v", err)
	}
}
