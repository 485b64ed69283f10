package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postdate/postdate/client"
)

// recurrenceRequest is a recurrence in the API's form, as flags give it: the server says what is wrong.
type recurrenceRequest struct {
	Every    string `json:"every,omitempty"`
	Anchor   string `json:"anchor,omitempty"`
	Cron     string `json:"cron,omitempty"`
	Timezone string `json:"timezone,omitempty"`
	Start    string `json:"start,omitempty"`
	End      string `json:"end,omitempty"`
	MaxRuns  int    `json:"maxRuns,omitempty"`
	Gap      string `json:"gap,omitempty"`
	Overlap  string `json:"overlap,omitempty"`

	// Of a series that runs.
	Jitter       string `json:"jitter,omitempty"`
	Misfire      string `json:"misfire,omitempty"`
	MisfireAfter string `json:"misfireAfter,omitempty"`
}

func (r *recurrenceRequest) register(f *pflag.FlagSet) {
	f.StringVar(&r.Every, "every", "", "an interval, like 10s, 15m or PT15M")
	f.StringVar(&r.Anchor, "anchor", "",
		"the first occurrence of --every, from which the others are counted (default: --start, or now)")
	f.StringVar(&r.Cron, "cron", "",
		"minute, hour, day of month, month, day of week; before them, if there are six, the second; or @daily")
	f.StringVar(&r.Timezone, "timezone", "", "the time zone of --cron, like Europe/Berlin or UTC")
	f.StringVar(&r.Start, "start", "", "not before this RFC 3339 time")
	f.StringVar(&r.End, "end", "", "not after this RFC 3339 time")
	f.IntVar(&r.MaxRuns, "max-runs", 0, "at most so many occurrences; 0: no limit")
	f.StringVar(&r.Gap, "gap", "",
		"instead of local times that a clock set forward leaves out: after or skip (default: by the rule)")
	f.StringVar(&r.Overlap, "overlap", "",
		"of local times that a clock set back shows twice: first, second or both (default: by the rule)")
}

// registerRun registers what does not change when a rule recurs, but what becomes of its occurrences.
func (r *recurrenceRequest) registerRun(f *pflag.FlagSet) {
	f.StringVar(&r.Jitter, "jitter", "", "begin each occurrence later by a part of this duration (default: none)")
	f.StringVar(&r.Misfire, "misfire", "", "of occurrences that could not begin in time: fire_once begins the latest, "+
		"fire_all all of them, skip none (default: fire_once)")
	f.StringVar(&r.MisfireAfter, "misfire-after", "", "how late an occurrence may begin (default: 1m)")
}

type previewCommand struct {
	clientCommand
	request struct {
		Recurrence recurrenceRequest `json:"recurrence"`
		From       string            `json:"from,omitempty"`
		Count      int               `json:"count"`
	}
}

func newPreview(p process) *cobra.Command {
	v := &previewCommand{clientCommand: clientCommand{process: p}}
	cmd := &cobra.Command{
		Use:   "preview (--every INTERVAL | --cron RULE --timezone ZONE)",
		Short: "Show when a rule recurs",
		Long: `Show when a message with a rule would recur, and what a clock that is set forward
or back changes. Send takes the flags of a rule too.`,
		Example: `  postdate preview --cron '30 2 * * *' --timezone Europe/Berlin --from 2027-03-27T00:00:00Z
  postdate preview --every PT12H --count 3`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("%q is too much: a rule by cron goes in quotes, like --cron '30 2 * * *'", args[0])
			}
			return nil
		},
	}
	f := cmd.Flags()
	v.request.Recurrence.register(f)
	f.StringVar(&v.request.From, "from", "", "the first RFC 3339 time that is asked for (default: just after now)")
	f.IntVar(&v.request.Count, "count", 10, "how many occurrences")
	v.withJSON(cmd, "print the server's answer as it is")
	return v.bind(cmd, v.run)
}

func (v *previewCommand) run(cmd *cobra.Command, c *client.Client, _ []string) error {
	if v.request.Recurrence.Every == "" && v.request.Recurrence.Cron == "" {
		return usagef("say how often: --every INTERVAL, or --cron RULE --timezone ZONE")
	}
	body, err := json.Marshal(v.request)
	if err != nil {
		return err
	}
	a, err := c.Do(cmd.Context(), client.Call{Method: http.MethodPost, Path: "/v1/recurrences/preview", Body: body,
		Repeatable: true})
	if err != nil {
		return wrongUse(cmd, err)
	}
	if v.json {
		return printLine(cmd.OutOrStdout(), a.Body)
	}
	var answer struct {
		Occurrences []client.Occurrence `json:"occurrences"`
	}
	if err := decode(a.Body, &answer); err != nil {
		return err
	}
	return v.print(cmd.OutOrStdout(), answer.Occurrences)
}

// wrongUse makes a usage error of a server's that is about what the flags said, and names the flag.
func wrongUse(cmd *cobra.Command, err error) error {
	var p *client.Problem
	if !errors.As(err, &p) || p.Status != http.StatusBadRequest || p.Pointer == "" {
		return err
	}
	name := strings.NewReplacer("executionTime", "at", "delay", "in", "payload", "data", "contentType", "content-type",
		"maxRuns", "max-runs", "misfireAfter", "misfire-after").Replace(path.Base(p.Pointer))
	if cmd.Flags().Lookup(name) == nil {
		return usagef("%v", err)
	}
	return usagef("--%s: %v", name, err)
}

// print shows each time and, by cron, what the clock of the zone shows then.
func (v *previewCommand) print(w io.Writer, occurrences []client.Occurrence) error {
	if len(occurrences) == 0 {
		_, err := fmt.Fprintln(w, "none within a hundred years")
		return err
	}
	zone, err := time.LoadLocation(v.request.Recurrence.Timezone)
	if err != nil {
		return errors.New("the server knows the time zone, and this machine does not: --json shows its times in UTC")
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, o := range occurrences {
		fmt.Fprint(table, shownTime(o.Time))
		if v.request.Recurrence.Cron != "" {
			fmt.Fprint(table, "\t", o.Time.In(zone).Format("Mon 2006-01-02 15:04:05 -07:00"))
		}
		if o.Remark != "" {
			fmt.Fprint(table, "\t", o.Remark)
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil || len(occurrences) >= v.request.Count {
		return err
	}
	_, err = fmt.Fprintln(w, "no more within a hundred years")
	return err
}
