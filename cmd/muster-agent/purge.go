package main

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/agent"
	"github.com/musterhq/muster/agent/container"
	"github.com/musterhq/muster/agent/link"
)

func purgeCommand() *cobra.Command {
	var host hostFlags
	var state string
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Remove all containers, networks and rules this agent has made",
		Long: `Remove all containers, overlays, networks and firewall rules this agent has made on the machine. The agent must not
run. Whatever runs for renters ends; what the host has proven so far stays in its journal and is still owed to it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			unlock, err := lockState(state)
			if err != nil {
				return err
			}
			defer unlock()
			identity, err := link.Load(state)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			engine, err := container.New(container.Config{Docker: host.docker, Host: identity.Host, Overlay: netip.MustParsePrefix("10.77.0.0/20"),
				Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
			if err != nil {
				return err
			}
			defer engine.Close()
			return agent.Purge(ctx, identity.Host, state, engine)
		},
	}
	cmd.Flags().StringVar(&state, "state", defaultState, "the agent's state directory")
	host.add(cmd)
	return cmd
}
