package cli

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/agent"
	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/agent/net/link"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/image"
)

func purgeCommand() *cobra.Command {
	var host hostFlags
	var state string
	var images bool
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Remove all containers, networks and rules that this agent created",
		Long: `Remove all containers, scratches, overlays, networks and firewall rules this agent has made on the
machine, and give back the power limits it has set on GPUs. The agent must not run. Whatever runs for renters ends; what
the host has proven so far stays in its journal and is still owed to it.`,
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
			engine, err := container.New(container.Config{
				Docker:  host.docker,
				Host:    identity.Host,
				Overlay: netip.MustParsePrefix("10.77.0.0/20"),
				Log:     slog.New(slog.NewTextHandler(os.Stderr, nil)),
			})
			if err != nil {
				return err
			}
			defer engine.Close()
			var store *scratch.Store
			if host.scratchDir != "" {
				store = scratch.New(host.scratchDir, 0, container.Host8(identity.Host))
			}
			err = errors.Join(agent.Purge(ctx, identity.Host, state, engine, store),
				gpu.GivePowerBack(ctx, gpu.Config{LibraryPath: os.Getenv(gpu.LibraryEnv), AMDTree: os.Getenv(gpu.TreeEnv),
					StateDir: filepath.Join(state, "gpu")}))
			if images {
				err = errors.Join(err, purgeImages(ctx, state, identity, engine))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&state, "state", defaultState, "the agent's state directory")
	cmd.Flags().BoolVar(&images, "images", false, "remove the images it has pulled, too")
	host.add(cmd)
	return cmd
}

// purgeImages removes every image that was pulled for this host, and no other.
func purgeImages(ctx context.Context, state string, identity *link.Identity, engine *container.Engine) error {
	p, err := image.New(image.Config{Daemon: engine, Dir: filepath.Join(state, "images"), Prefix: imagePrefix(identity),
		Free: func() (int64, error) { return 0, nil }, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = p.GC(ctx, nil, 0, 1) // free space 0: removes all
	return err
}
