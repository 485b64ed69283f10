package main

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError is the error of a command that was used wrongly: exit code 2.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &usageError{text: fmt.Sprintf(format, args...)}
}

// failure is the error of a command that was used correctly: exit code 1.
type failure struct{ err error }

func (e *failure) Error() string { return e.err.Error() }

func (e *failure) Unwrap() error { return e.err }

// action marks a command's own errors as failures. Errors that cobra reports before it runs (an
// unknown command, a wrong flag or argument) stay usage errors.
func action(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := f(cmd, args); err != nil {
			return &failure{err: err}
		}
		return nil
	}
}

const rootLong = `Postdate keeps messages until they are due, and then brings them to RabbitMQ,
Kafka, a webhook or a built-in inbox. You say over HTTP what to send, when, and to which
channel; until then you can cancel it.

New here? "postdate demo" shows the whole thing in six seconds and needs
nothing else. Then:

  postdate serve                                         # in one terminal
  postdate send --in 5s --channel inbox:test --data hi   # in another
  postdate tail inbox:test

Exit codes: 0 done, 1 failed, 2 called wrongly.`

const environmentHelp = `Every flag is also an environment variable: --rabbitmq is POSTDATE_RABBITMQ. The
flag goes before the variable, and an empty variable counts as absent.`

// newRoot makes the whole tree of commands.
func newRoot(p process) *cobra.Command {
	root := &cobra.Command{
		Use:           "postdate",
		Short:         "A delayed-message queue",
		Long:          rootLong,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetFlagErrorFunc(flagError)
	root.AddGroup(
		&cobra.Group{ID: "node", Title: "Run it:"},
		&cobra.Group{ID: "messages", Title: "Messages, on a running node:"},
		&cobra.Group{ID: "look", Title: "Look and measure:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("node", newServe(p), newDemo(p), newStore(p))
	add("messages", newSend(p), newGet(p), newCancel(p), newList(p), newFailures(p), newTail(p), newPreview(p),
		newPauseSeries(p), newResumeSeries(p), newTrigger(p), newRedrive(p), newPurge(p), newJob(p))
	add("look", newCluster(p), newStats(p), newChannels(p), newPause(p), newResume(p), newKeys(p), newWhoAmI(p),
		newBench(p), newVersion())
	return root
}

// flagError describes a wrong flag, and names the one that was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		return usagef("unknown flag --%s%s", unknown.GetSpecifiedName(),
			didYouMean("--", nearest(unknown.GetSpecifiedName(), flagNames(cmd.Flags()))))
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return valueError("--"+invalid.GetFlag().Name, invalid.GetValue(), invalid.GetFlag())
	}
	return usagef("%v", err)
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  postdate version",
		Args:    cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "postdate %s (%s, %s/%s)\n",
				buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		}),
	}
}
