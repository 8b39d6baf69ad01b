package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/agent/net/link"
)

const defaultState = "/var/lib/muster-agent"

func enrollCommand() *cobra.Command {
	var host hostFlags
	var url, tokenFile, caFile, state string
	var ephemeral bool
	cmd := &cobra.Command{
		Use:   "enroll",
		Short: "Enrol this host with a platform",
		Long: `Make this host known to a platform, with a one-time token from its dashboard.

The host makes its own keys; they never leave it. The token is read from a file or from stdin, never from the command
line, which every user of the machine can read.`,
		Example: `  echo "$TOKEN" | muster-agent enroll --url https://muster.example
  muster-agent enroll --url https://muster.example --token-file /run/token
  muster-agent enroll --url https://muster.example --token-file /run/token --ephemeral`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := host.check(); err != nil {
				return err
			}
			token, err := link.ReadToken(tokenFile, cmd.InOrStdin())
			if err != nil {
				return err
			}
			cfg := link.EnrollConfig{URL: url, Token: token, StateDir: state, Ephemeral: ephemeral}
			if caFile != "" {
				if cfg.CA, err = os.ReadFile(caFile); err != nil {
					return err
				}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Minute)
			defer cancel()
			monitor, err := gpu.Start(ctx, gpu.Config{LibraryPath: os.Getenv(gpu.LibraryEnv), AMDTree: os.Getenv(gpu.TreeEnv),
				OwnerMemory: host.ownerMemory()})
			if err != nil {
				return err
			}
			defer monitor.Close()
			if cfg.Inventory, err = host.inventory(ctx, monitor); err != nil {
				return err
			}
			id, err := link.Enroll(ctx, cfg)
			if err != nil {
				return err
			}
			cmd.Printf("This host is enrolled as %s (%s). What is left is to start the agent: the install script does; by "+
				"hand: muster-agent run --state %s\n", id.Name, id.Host, state)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&url, "url", "", "the platform's address for hosts, https://…")
	f.StringVar(&tokenFile, "token-file", "-", "file that holds the token; - is stdin")
	f.StringVar(&caFile, "ca", "", "PEM file to verify the platform with (default: the system's)")
	f.StringVar(&state, "state", defaultState, "the agent's state directory")
	f.BoolVar(&ephemeral, "ephemeral", false, "this machine may vanish, as a cloud's virtual machine: the platform "+
		"retires the host when it has not reported for a day and has no lease")
	host.add(cmd)
	cobra.CheckErr(cmd.MarkFlagRequired("url"))
	return cmd
}

func (f *hostFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.docker, "docker", "", "the Docker daemon's address (default: DOCKER_HOST or "+
		"unix:///var/run/docker.sock)")
	fl.StringVar(&f.attach, "attach", "", "how GPUs are attached: cdi, nvidia or none (default: the best there is; "+
		"none for simulated GPUs)")
	fl.StringSliceVar(&f.advertise, "advertise", nil, "addresses other hosts reach this one at, best first (default: "+
		"its own)")
	fl.StringSliceVar(&f.underlay, "underlay-interface", nil, "network ports that traffic between hosts should go by "+
		"while it can, best first (default: whichever is best)")
	fl.StringSliceVar(&f.fabricDevices, "fabric-device", nil, "RDMA devices, such as mlx5_0, that renters of all of this "+
		"host's GPUs get; their fabric must be the one that the host is enrolled with (default: none)")
	fl.StringVar(&f.fabricProgram, "fabric-program", "", "program that has the subnet manager put the ports of "+
		"--fabric-device into a cluster's partition: join|leave FABRIC CLUSTER PKEY PORT-GUID… (default: a fabric has one "+
		"tenant at a time)")
	fl.StringVar(&f.fabricNCCL, "fabric-nccl", "", "NCCL's library, such as /usr/lib/x86_64-linux-gnu/libnccl.so.2: "+
		"before "+
		"a cluster with RDMA starts, its GPUs measure the fabric with it; all hosts of a fabric need the same version "+
		"(default: nothing is measured)")
	fl.Var(&f.shares, "shared", "NAME=PATH of a shared file system, such as lab-nfs=/mnt/lab, that is mounted there on "+
		"each of its hosts and declared by muster shared declare; repeatable (default: none)")
	fl.IntVar(&f.ownerMB, "owner-vram-mb", gpu.OwnerMemory>>20,
		"MiB of a GPU's memory that programs of this host's owner may hold for it still to be rented out (0: none)")
	fl.IntVar(&f.caps.UpMbps, "lease-up-mbps", 0, "what each lease may send over this host's own line, megabits per "+
		"second (0: no bound)")
	fl.IntVar(&f.caps.DownMbps, "lease-down-mbps", 0, "what each lease may receive over it, megabits per second (0: no "+
		"bound)")
	fl.StringVar(&f.scratchDir, "scratch-dir", "", "folder on a fast disk (ext4, XFS, btrfs) from which nodes get "+
		"scratch space of their own, emptied with each (default: none is offered)")
	fl.Int64Var(&f.scratchGB, "scratch-gb", 0, "GB that all nodes' scratch together may take there (0: what the disk "+
		"has; needed where Docker's data is on the same disk)")
	fl.IntVar(&f.caps.Connections, "lease-connections", 0, fmt.Sprintf("how many connections each lease may have open "+
		"to the internet at once (0: %d)", firewall.FullConnections))
}
