package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postdate/postdate/node"
)

func newStore(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "store",
		Short:   "Prepare a store",
		Example: "  postdate store init --store 'mongodb://m1,m2,m3/postdate?replicaSet=rs0'",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newStoreInit(p))
	return cmd
}

func newStoreInit(p process) *cobra.Command {
	n := &nodeFlags{}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create the store that a cluster is to share",
		Long: `Create the collections, the indexes and, behind a mongos, the sharding of the store
that --store names, as far as they are not there. A node does the same when it starts: this
is for nodes that have no right to, and for operators who want to see it done first.

It also converts a store that a node refuses: one that an earlier version wrote, and one
that was made on a replica set and is behind a mongos now. Stop all nodes first, and have
a backup. It may be interrupted and run again.`,
		Example: "  postdate store init --store 'mongodb://m1,m2,m3/postdate?replicaSet=rs0' --buckets 256",
		Args:    cobra.NoArgs,
	}
	n.register(cmd.Flags()) // all of a node's flags, because it may share a node's file
	shown := []string{"store", "buckets", "log-level", "log-format", configFlag}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = !slices.Contains(shown, f.Name) })
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		if err := resolve(cmd.Flags(), p.environ); err != nil {
			return err
		}
		config := n.finish(p.stderr)
		if err := config.Validate(); err != nil {
			return usagef("%v", secretsOf(config).redactError(err))
		}
		if err := node.InitStore(cmd.Context(), config); err != nil {
			return secretsOf(config).redactError(err)
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "the store is there, with %d buckets\n", config.Buckets)
		return err
	})
	return cmd
}
