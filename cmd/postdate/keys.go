package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/client"
)

func newKeys(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make, list and revoke API keys",
		Long: `Manage the keys by which a node knows who calls it. It needs a node that was
started with --admin-key (POSTDATE_ADMIN_KEY), and the same key, or another one with
the scope admin, in --api-key (POSTDATE_API_KEY).`,
		Example: `  postdate keys create --tenant acme --scope sched:w,sched:r
  postdate keys list
  postdate keys revoke ID`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newKeysCreate(p), newKeysList(p), newKeysRevoke(p))
	return cmd
}

func newKeysCreate(p process) *cobra.Command {
	c, wish := &clientCommand{process: p}, client.KeyWish{}
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a key, and print it once",
		Long: `Make a key, and print its text on standard output: nobody can show it again. Its id
goes to standard error; it is the part of the text between the underscores.

The scopes: sched:r gets and lists messages and reads inboxes; sched:w schedules,
changes and cancels; channels:w pauses and limits channels; ops:r sees metrics, the
cluster and channels; admin does for every call, and for the keys and limits of all
tenants. Messages, inboxes and channels are those of the key's own tenant; with admin a
command acts for another one with --as-tenant.

With --channel the key schedules only to these channels, and reads only these
inboxes. A * stands for any characters, / too. Repeat the flag for several; a comma in
a channel's name is written as *.`,
		Example: `  postdate keys create --tenant acme --scope sched:w,sched:r
  postdate keys create --tenant acme --scope sched:w --channel 'rabbitmq:acme-*' --expires 90d`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&wish.Tenant, "tenant", "", "whose messages the key is for")
	cmd.Flags().StringSliceVar(&wish.Scopes, "scope", nil, "what it is for; may be repeated")
	cmd.Flags().StringArrayVar(&wish.Channels, "channel", nil,
		"a channel that it may use, or a pattern; may be repeated (default: all)")
	cmd.Flags().StringVar(&wish.Expires, "expires", "",
		"how long it is good, like 90d or 12h (default: until it is revoked)")
	return c.bind(cmd, func(cmd *cobra.Command, cl *client.Client, _ []string) error {
		switch {
		case wish.Tenant == "":
			return usagef("say for whom: --tenant NAME")
		case len(wish.Scopes) == 0:
			return usagef("say what for: --scope sched:w,sched:r")
		}
		for _, pattern := range wish.Channels {
			if strings.Contains(pattern, ",") {
				return usagef("--channel %q has a comma: repeat --channel for each, and write * for a comma in a name",
					pattern)
			}
		}
		made, err := cl.CreateKey(cmd.Context(), wish)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "key %s of tenant %s; its text is shown only now:\n", made.ID, made.Tenant)
		_, err = fmt.Fprintln(cmd.OutOrStdout(), made.Text)
		return err
	})
}

func newKeysList(p process) *cobra.Command {
	c := &clientCommand{process: p}
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the keys of all tenants, without their text",
		Example: "  postdate keys list",
		Args:    cobra.NoArgs,
	}
	c.withJSON(cmd, "print the server's answer as it is")
	return c.bind(cmd, func(cmd *cobra.Command, cl *client.Client, _ []string) error {
		if c.json {
			return printRaw(cmd, cl, http.MethodGet, "/v1/keys")
		}
		keys, err := cl.Keys(cmd.Context())
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "ID\tTENANT\tSCOPES\tCHANNELS\tCREATED\tEXPIRES\tLAST USED")
		for _, k := range keys {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, k.Tenant, strings.Join(k.Scopes, ","),
				orAll(k.Channels), shownTime(k.CreatedAt), shownExpiry(k.ExpiresAt, time.Now()), orNever(k.LastUsedAt))
		}
		return table.Flush()
	})
}

func orAll(channels []string) string {
	if len(channels) == 0 {
		return "all"
	}
	return strings.Join(channels, ",")
}

func orNever(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return shownTime(t)
}

// shownExpiry says when a key expires, and whether it has.
func shownExpiry(at, now time.Time) string {
	if at.IsZero() || at.After(now) {
		return orNever(at)
	}
	return shownTime(at) + " (expired)"
}

func newKeysRevoke(p process) *cobra.Command {
	c := &clientCommand{process: p}
	cmd := &cobra.Command{
		Use:   "revoke ID...",
		Short: "Revoke keys, on all nodes",
		Long: `Revoke keys by their ids, which "postdate keys list" shows. All nodes refuse them
within a second. Of a key's whole text only the id is used.`,
		Example: "  postdate keys revoke k3v9x0q2m7ab",
		Args:    keyIDs,
	}
	return c.bind(cmd, func(cmd *cobra.Command, cl *client.Client, keys []string) error {
		var ids []string
		for _, key := range keys {
			id := auth.IDOf(key)
			if id != key {
				fmt.Fprintf(cmd.ErrOrStderr(), "a key's whole text was given: only its id, %s, is used\n", id)
			}
			ids = append(ids, id)
		}
		return each(ids, func(id string) error {
			if err := cl.RevokeKey(cmd.Context(), id); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "revoked %s\n", id)
			return err
		})
	})
}

// keyIDs checks the arguments of revoke: no id is empty.
func keyIDs(_ *cobra.Command, keys []string) error {
	if len(keys) == 0 || slices.ContainsFunc(keys, func(key string) bool { return auth.IDOf(key) == "" }) {
		return usagef("say which: the id of a key, which \"postdate keys list\" shows")
	}
	return nil
}
