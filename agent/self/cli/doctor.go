package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/machine/nvhost"
	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/agent/storage/fusemount"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// finding is the doctor's result of one check or problem.
type finding struct {
	Check  string `json:"check"`
	State  string `json:"state"` // ok, warn, bad (bad: the host cannot be rented out)
	Cause  string `json:"cause"`
	Found  string `json:"found,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// machine is what the doctor checks in addition to the inventory.
type machine struct {
	Root      bool
	NFT       error // from listing tables
	TUN       error // from opening /dev/net/tun
	Reachable bool
	Watchers  []string // running programs of DCGM
	Ports     ports
}

func doctorCommand() *cobra.Command {
	var host hostFlags
	var look portFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this host and print what to fix",
		Long: `Check what renting out this host needs: rights, kernel, firewall, Docker, GPUs and how they reach
containers, disk, network, and whether the platform's ports are open from here: of the platform it is enrolled at, or of
--url. Each finding says what was seen and what to do. It changes nothing, and needs no server for the rest.

The exit code is 1 when something keeps the host from being rented out.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := host.check(); err != nil {
				return err
			}
			inv, err := readInventory(cmd.Context(), host)
			if err != nil {
				return err
			}
			m := lookAround(cmd.Context(), host)
			if m.Ports, err = look.ports(cmd.Context()); err != nil {
				return err
			}
			all := diagnose(inv, m)
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				err = enc.Encode(all)
			} else {
				err = printFindings(cmd.OutOrStdout(), all)
			}
			if bad := count(all, "bad"); err == nil && bad > 0 {
				return fault.New(fault.Conflict, "fix the findings marked bad (%d), then this host can be rented", bad)
			}
			return err
		},
	}
	host.add(cmd)
	look.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the findings as JSON")
	return cmd
}

func lookAround(ctx context.Context, host hostFlags) machine {
	m := machine{Root: os.Geteuid() == 0, Reachable: host.reachable(), Watchers: watchers("/proc")}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "nft", "list", "tables").CombinedOutput(); err != nil {
		m.NFT = fmt.Errorf("nft list tables: %w %s", err, strings.TrimSpace(string(out)))
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	} else if !overlay.KernelWireGuard() {
		m.TUN = fmt.Errorf("open /dev/net/tun: %w", err)
	}
	return m
}

// watchers returns the programs of NVIDIA's DCGM that run here, by the kernel's names of them, without duplicates.
func watchers(procfs string) []string {
	var out []string
	names, _ := filepath.Glob(filepath.Join(procfs, "[0-9]*", "comm"))
	for _, path := range names {
		b, err := os.ReadFile(path)
		if name := strings.TrimSpace(string(b)); err == nil && (name == "nv-hostengine" || name == "dcgm-exporter") &&
			!slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// checks are the doctor's checks, with the codes of the inventory's problems that belong to each.
var checks = []struct {
	name  string
	codes []string
	good  func(agentapi.Inventory) string // what was found if nothing is wrong
}{
	{"docker", []string{"docker_unreachable", "no_live_restore", "runsc_not_usable"},
		func(i agentapi.Inventory) string { return "Docker " + i.DockerVersion + ", live-restore on" }},
	{"toolkit", []string{"toolkit_too_old", "no_gpu_runtime", "cdi_not_usable", "cdi_stale", "attach_none"},
		func(i agentapi.Inventory) string {
			if i.ToolkitVersion == "" {
				return "GPUs are attached by: " + i.AttachMode
			}
			return "NVIDIA Container Toolkit " + i.ToolkitVersion + ", GPUs are attached by: " + i.AttachMode
		}},
	{"nvidia", nvhost.Codes(), func(agentapi.Inventory) string {
		return "Kernel modules, fabric manager, the GPUs' modes and the PCI bridges above them are as they should be."
	}},
	{"amd", []string{"kfd_missing", "rocm_unknown", "gpu_not_rentable"}, func(i agentapi.Inventory) string {
		return "amdgpu " + i.AMDGPU + " runs ROCm up to " + i.GPUs[0].Runtimes["rocm"] + " at least."
	}},
	{"disk", []string{"disk_not_limited"}, func(i agentapi.Inventory) string {
		return fmt.Sprintf("%d GB free, %s holds each node to its size", i.DiskGB, i.StorageDriver)
	}},
	{"scratch", []string{scratch.ProblemUnusable}, func(i agentapi.Inventory) string {
		if i.ScratchGB == 0 {
			return "No scratch is offered. A fast disk of its own could be: --scratch-dir FOLDER."
		}
		return fmt.Sprintf("%d GB for nodes' scratch, each held to its size", i.ScratchGB)
	}},
	{"volumes", []string{scratch.ProblemNoVolumes}, func(i agentapi.Inventory) string {
		if i.ScratchGB == 0 {
			return "Volumes are kept in the scratch folder: there is none."
		}
		return "Volumes can be kept in the scratch folder."
	}},
	{"mounts", []string{fusemount.ProblemUnusable}, func(i agentapi.Inventory) string {
		if i.ScratchGB == 0 {
			return "Buckets and lazy volumes are cached in the scratch folder: there is none."
		}
		return "Buckets and lazy volumes can be mounted."
	}},
}

// concerns reports whether a check is about the host's GPUs, if it is about those of one vendor.
func concerns(check string, inv agentapi.Inventory) bool {
	of := map[string]string{"toolkit": agentapi.NVIDIA, "nvidia": agentapi.NVIDIA, "amd": agentapi.AMD}[check]
	return of == "" || len(inv.GPUs) > 0 && inv.GPUs[0].VendorOf() == of
}

// leastDiskGB is the space that an image and some data need.
const leastDiskGB = 50

// diagnose returns the findings in order: one for each check that passed, one for each problem.
func diagnose(inv agentapi.Inventory, m machine) []finding {
	var out []finding
	say := func(check, state, cause, found, remedy string) {
		out = append(out, finding{check, state, cause, found, remedy})
	}
	rate := func(check string, bad bool, good, cause, found, remedy string) {
		if bad {
			say(check, "bad", cause, found, remedy)
		} else {
			say(check, "ok", good, "", "")
		}
	}
	rate("rights", !m.Root, "The agent may do what it must.", "Networks, firewall and containers need root.", "",
		"Run it as root: sudo muster-agent doctor.")
	rate("kernel", m.TUN != nil, "The kernel carries the clusters' networks: "+inv.Kernel,
		"The kernel can make neither WireGuard nor TUN devices.", text(m.TUN), "Load the module: modprobe tun.")
	rate("firewall", m.NFT != nil, "nftables answers.", "The firewall cannot be set: renters' containers would reach "+
		"this network.", text(m.NFT), "Install nftables (apt install nftables); a container needs CAP_NET_ADMIN.")

	reported := map[string]bool{}
	for _, c := range checks {
		well := true
		for _, p := range inv.Problems {
			for _, code := range c.codes {
				if p.Code == code {
					say(c.name, p.Severity, p.Cause, p.Evidence, p.Fix)
					well, reported[p.Code] = false, true
				}
			}
		}
		if well && inv.DockerVersion != "" && concerns(c.name, inv) {
			say(c.name, "ok", c.good(inv), "", "")
		}
	}
	if inv.DockerVersion != "" && inv.DiskGB < leastDiskGB {
		say("disk", "warn", "There is little room for images and data.", fmt.Sprintf("%d GB are free", inv.DiskGB),
			"Make room, or put Docker's data on a larger disk.")
	}
	if len(inv.GPUs) > 0 {
		say("gpus", "ok", fmt.Sprintf("%d × %s, driver %s", len(inv.GPUs), inv.GPUs[0].Model,
			cmp.Or(inv.Driver, inv.AMDGPU)), "", "")
	}
	if len(m.Watchers) > 0 {
		say("dcgm", "ok", "DCGM watches the GPUs, which disturbs no lease as long as it leaves profiling metrics "+
			"(DCGM_FI_PROF_*) alone.", strings.Join(m.Watchers, ", "),
			"Their counters serve one program at a time, and renters profile too: leave them out of the exporter's list, or "+
				"run dcgmi profile --pause.")
	}
	why := false
	for _, p := range inv.Problems {
		if p.Code == "underlay_down" || p.Code == "fabric_device" {
			say("network", p.Severity, p.Cause, p.Evidence, p.Fix)
		} else if !reported[p.Code] {
			say("gpus", p.Severity, p.Cause, p.Evidence, p.Fix)
			why = why || p.Severity == "bad"
		}
	}
	if len(inv.GPUs) == 0 && !why {
		say("gpus", "bad", "No GPU is seen.", "", "Install the GPUs' driver: nvidia-smi must list NVIDIA's, rocm-smi AMD's.")
	}
	if m.Reachable {
		say("network", "ok", "Other hosts reach this one straight.", "", "")
	} else {
		say("network", "warn", "Other hosts reach this one through its router only where that keeps ports, else through a "+
			"relay, which is slower.",
			"no public address", "If the router forwards UDP ports, name its address: --advertise ADDRESS.")
	}
	return append(out, m.Ports.diagnose()...)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func count(all []finding, state string) (n int) {
	for _, f := range all {
		if f.State == state {
			n++
		}
	}
	return n
}

func printFindings(out io.Writer, all []finding) error {
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "%-5s %-9s %s\n", f.State, f.Check, f.Cause)
		if f.Found != "" {
			fmt.Fprintf(&b, "%16sfound: %s\n", "", f.Found)
		}
		if f.Remedy != "" {
			fmt.Fprintf(&b, "%16sdo:    %s\n", "", f.Remedy)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}
