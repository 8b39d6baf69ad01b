package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/internal/agentapi"
)

func inventoryCommand() *cobra.Command {
	var host hostFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inventory",
		Short: "Show what this host has, without a server",
		Long: "Show what this host has: its GPUs, how they are connected, and what would keep it from being rented " +
			"out.\nIt needs no server and no enrolment.",
		Example: `  muster-agent inventory
  muster-agent inventory --json | jq '.gpus[].model'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := host.check(); err != nil {
				return err
			}
			inv, err := readInventory(cmd.Context(), host)
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(inv)
			}
			return printInventory(cmd.OutOrStdout(), inv)
		},
	}
	host.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the inventory as JSON, as it is sent to the server")
	return cmd
}

// readInventory reads the host's inventory once.
func readInventory(ctx context.Context, host hostFlags) (agentapi.Inventory, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	monitor, err := gpu.Start(ctx, gpu.Config{LibraryPath: os.Getenv(gpu.LibraryEnv), AMDTree: os.Getenv(gpu.TreeEnv),
		OwnerMemory: host.ownerMemory()})
	if err != nil {
		return agentapi.Inventory{}, err
	}
	defer monitor.Close()
	return host.inventory(ctx, monitor)
}

func printInventory(out io.Writer, inv agentapi.Inventory) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")) }
	row("Host", inv.Hostname)
	row("System", fmt.Sprintf("%s, kernel %s, %s", inv.OS, inv.Kernel, inv.Arch))
	row("Processor", fmt.Sprintf("%s (%d logical cores)", inv.CPUModel, inv.CPUCores))
	row("Memory", fmt.Sprintf("%d MB", inv.RAMMB))
	if inv.Driver != "" {
		row("Driver", fmt.Sprintf("%s, CUDA up to %s", inv.Driver, inv.CUDAMax))
	}
	if inv.AMDGPU != "" {
		row("Driver", "amdgpu "+inv.AMDGPU)
	}
	if inv.Simulated {
		row("", "The GPUs are simulated.")
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(inv.GPUs) > 0 {
		fmt.Fprintln(out)
		printGPUs(out, inv.GPUs)
	}
	if len(inv.GPUs) > 1 {
		fmt.Fprintln(out)
		printTopology(out, inv)
	}
	if len(inv.NUMA) > 0 {
		fmt.Fprintln(out)
		printNUMA(out, inv)
	}
	if len(inv.NICs) > 0 {
		fmt.Fprintln(out)
		printNICs(out, inv.NICs)
	}
	if len(inv.HCAs) > 0 {
		fmt.Fprintln(out)
		printHCAs(out, inv.HCAs)
	}
	for _, p := range inv.Problems {
		fmt.Fprintf(out, "\n%s: %s\n", map[string]string{"bad": "Problem", "warn": "Warning"}[p.Severity], p.Cause)
		if p.Evidence != "" {
			fmt.Fprintf(out, "  seen: %s\n", p.Evidence)
		}
		if p.Fix != "" {
			fmt.Fprintf(out, "  to do: %s\n", p.Fix)
		}
	}
	return nil
}

func printGPUs(out io.Writer, gpus []agentapi.GPU) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "GPU\tMODEL\tMEMORY\tPCI\tPCIE\tNVLINK\tHEALTH\tUUID")
	for _, g := range gpus {
		active := 0
		for _, link := range g.NVLinks {
			if link.Active {
				active++
			}
		}
		health := g.Health
		if g.HealthReason != "" {
			health += " (" + g.HealthReason + ")"
		}
		if g.InUse != "" {
			health += ", in use (" + g.InUse + ")"
		}
		fmt.Fprintf(w, "%d\t%s\t%d MB\t%s\t%s\t%s\t%s\t%s\n", g.Index, g.Model, g.VRAMMB, g.PCIBus,
			"gen "+shown(g.PCIeGenMax)+" x"+shown(g.PCIeWidthMax), dash(active), health, g.UUID)
	}
	w.Flush()
}

func printTopology(out io.Writer, inv agentapi.Inventory) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, g := range inv.GPUs {
		fmt.Fprintf(w, "\tGPU %d", g.Index)
	}
	fmt.Fprintln(w)
	for i, levels := range inv.Topology {
		fmt.Fprintf(w, "GPU %d\t%s\n", inv.GPUs[i].Index, strings.Join(levels, "\t"))
	}
	w.Flush()
}

// printNUMA prints which GPUs are near which processors.
func printNUMA(out io.Writer, inv agentapi.Inventory) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NUMA NODE\tPROCESSORS\tMEMORY\tGPUS")
	for _, n := range inv.NUMA {
		fmt.Fprintf(w, "%d\t%s\t%d MB\t%s\n", n.Node, n.CPUs, n.MemoryMB, cmp.Or(strings.Join(inv.GPUsNear(n.Node), " "),
			"-"))
	}
	w.Flush()
}

func printNICs(out io.Writer, nics []agentapi.NIC) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NETWORK PORT\tSPEED\tDRIVER\tNUMA NODE\tRDMA\tBETWEEN HOSTS")
	for _, n := range nics {
		speed, underlay := "down", "-"
		switch {
		case n.Up && n.SpeedMbps > 0:
			speed = fmt.Sprintf("%d Mb/s", n.SpeedMbps)
		case n.Up:
			speed = "?"
		}
		if n.Underlay {
			underlay = "first"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", n.Name, speed, cmp.Or(n.Driver, "-"), shown(n.NUMANode),
			cmp.Or(n.RDMA, "-"), underlay)
	}
	w.Flush()
}

func printHCAs(out io.Writer, hcas []agentapi.HCA) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RDMA PORT\tLINK\tSTATE\tSPEED\tDRIVER\tNUMA NODE\tNETWORK PORT\tUSE")
	for _, h := range hcas {
		speed, use := "?", "-"
		if h.Gbps > 0 {
			speed = fmt.Sprintf("%g Gb/s", h.Gbps)
		}
		if h.NVSwitch {
			use = "the GPUs' switches"
		}
		if h.Lent {
			use = "lent to renters"
		}
		fmt.Fprintf(w, "%s/%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", h.Device, h.Port, cmp.Or(h.LinkLayer, "?"),
			cmp.Or(h.State, "?"), speed, cmp.Or(h.Driver, "-"), shown(h.NUMANode), cmp.Or(h.Netdev, "-"), use)
	}
	w.Flush()
}

func shown(n agentapi.Optional[int]) string {
	if n.Value == nil {
		return "?"
	}
	return strconv.Itoa(*n.Value)
}

func dash(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}
