package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/client"
)

// jobPath is the path of one job.
func jobPath(id string) string { return "/v1/jobs/" + url.PathEscape(id) }

func newJob(p process) *cobra.Command {
	c := &clientCommand{process: p}
	cmd := &cobra.Command{
		Use:     "job ID",
		Short:   "Show how far a call with a filter has come",
		Long:    "Show how far a cancel, redrive or purge with a filter has come. It is a job of the\nserver.",
		Example: "  postdate job 01977b3e-6d40-7c7a-9c1e-0d7a4bb1d2aa",
		Args:    cobra.ExactArgs(1),
	}
	c.withJSON(cmd, "print the server's answer")
	return c.bind(cmd, func(cmd *cobra.Command, cl *client.Client, args []string) error {
		if c.json {
			return printRaw(cmd, cl, http.MethodGet, jobPath(args[0]))
		}
		j, err := cl.Job(cmd.Context(), args[0])
		if err == nil {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), shownJob(&j))
		}
		return err
	})
}

// shownJob is a job in a line.
func shownJob(j *client.Job) string {
	shown := fmt.Sprintf("%s %s: %d done, %d failed", j.Kind, j.State, j.Done, j.Failed)
	if j.LastError != "" {
		shown += "; " + j.LastError
	}
	return shown
}

// jobFlags are the flags of a command that works on what a filter selects.
type jobFlags struct {
	label, idPrefix, channel, from, to, lastError string

	noWait bool
	given  func(flag string) bool
}

// filterFlags are those that select messages.
var filterFlags = []string{"label", "id-prefix", "channel", "from", "to", "last-error"}

func (f *jobFlags) register(flags *pflag.FlagSet) {
	f.given = flags.Changed
	flags.StringVar(&f.label, "label", "", "those with this label, in place of ids")
	flags.StringVar(&f.idPrefix, "id-prefix", "", "those whose id begins so")
	flags.StringVar(&f.channel, "channel", "", "those of this channel")
	flags.StringVar(&f.from, "from", "", "those due at this RFC 3339 time or later")
	flags.StringVar(&f.to, "to", "", "those due before this RFC 3339 time")
	flags.BoolVar(&f.noWait, "no-wait", false, "print the job's id, and do not wait for its end")
}

// any says whether there is a filter.
func (f *jobFlags) any() bool { return slices.ContainsFunc(filterFlags, f.given) }

// filter refuses a flag that is given but empty: a script's variable was not set, and without that flag the filter
// would select more than is meant.
func (f *jobFlags) filter() (client.JobFilter, error) {
	for i, value := range []string{f.label, f.idPrefix, f.channel, f.from, f.to, f.lastError} {
		if value == "" && f.given(filterFlags[i]) {
			return client.JobFilter{}, usagef("--%s is empty: give it a value", filterFlags[i])
		}
	}
	to := client.JobFilter{Label: f.label, IDPrefix: f.idPrefix, Channel: f.channel, LastError: f.lastError}
	if f.from != "" {
		at, err := postdate.ParseTime(f.from)
		if err != nil {
			return to, usagef("--from: %v", err)
		}
		to.From = at.Std()
	}
	if f.to != "" {
		at, err := postdate.ParseTime(f.to)
		if err != nil {
			return to, usagef("--to: %v", err)
		}
		to.To = at.Std()
	}
	return to, nil
}

// run starts a job, and shows it until it is done, at last as JSON if that is asked for. If messages failed, that is
// an error.
func (f *jobFlags) run(cmd *cobra.Command, cl *client.Client, asJSON bool,
	start func(*client.Client, context.Context, client.JobFilter) (string, error)) error {
	filter, err := f.filter()
	if err != nil {
		return err
	}
	id, err := start(cl, cmd.Context(), filter)
	if err != nil {
		return err
	}
	switch {
	case f.noWait && asJSON:
		raw, _ := json.Marshal(map[string]string{"jobId": id}) // a string always has a JSON form
		return printLine(cmd.OutOrStdout(), raw)
	case f.noWait:
		_, err := fmt.Fprintln(cmd.OutOrStdout(), id)
		return err
	}
	last := ""
	j, err := cl.WaitJob(cmd.Context(), id, func(j client.Job) {
		if shown := shownJob(&j); j.Running() && shown != last {
			fmt.Fprintln(cmd.ErrOrStderr(), shown)
			last = shown
		}
	})
	if err != nil {
		return notWatched(id, err)
	}
	if asJSON {
		err = printRaw(cmd, cl, http.MethodGet, jobPath(id))
	} else {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), shownJob(&j))
	}
	if err != nil {
		return err
	}
	if j.Failed > 0 {
		return fmt.Errorf("%d messages could not be changed; of the last: %s", j.Failed, j.LastError)
	}
	return nil
}

// notWatched is the error of a command whose job cannot be watched for err. The words of err are about the look at
// the job, so they are shown only where they say what to do.
func notWatched(id string, err error) error {
	switch client.TypeOf(err) {
	case client.NoSuchJob:
		return err
	case client.Unauthorized, client.Forbidden:
		return fmt.Errorf("the job %s goes on at the server, but cannot be watched with this key: %w; "+
			"--no-wait starts a job without watching it", id, err)
	}
	return fmt.Errorf("the job %s goes on at the server: \"postdate job %s\" asks how far it has come", id, id)
}
