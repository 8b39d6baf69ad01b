package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/musterhq/muster/agent"
	"github.com/musterhq/muster/agent/machine/fabric"
	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/agent/machine/nvhost"
	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/agent/storage/fusemount"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/cores"
	"github.com/musterhq/muster/internal/agentapi"
)

// hostFlags are the flags for how a host is used; enroll, inventory and run share them.
type hostFlags struct {
	docker    string
	attach    string
	advertise []string
	underlay  []string // network ports for the overlay's traffic, best first
	// fabricDevices are the RDMA devices that renters of the whole host get.
	fabricDevices []string
	// fabricProgram puts them into clusters' partitions of the subnet manager; "" = none.
	fabricProgram string
	fabricNCCL    string        // path of the NCCL with which fabrics are measured; "" = they are not
	caps          firewall.Caps // of every lease
	// The operator's folder for scratches, "" for none, and what they may take, in GB; store is that folder once the host
	// is known.
	scratchDir string
	scratchGB  int64
	shares     sharesFlag // shared file systems that the operator has mounted
	store      *scratch.Store
	ownerMB    int               // MiB of a GPU's memory that processes outside any lease may hold while it can be rented
	ignored    *agentapi.Problem // options of the service that this version does not know
}

// ownerMemory returns ownerMB in the form of gpu.Config.
func (f hostFlags) ownerMemory() int64 {
	if f.ownerMB == 0 {
		return -1
	}
	return int64(f.ownerMB) << 20
}

// inventory returns what is known of the host now: the machine, its GPUs, its Docker.
func (f hostFlags) inventory(ctx context.Context, monitor *gpu.Monitor) (agentapi.Inventory, error) {
	inv := agentapi.Inventory{
		Protocol:     agentapi.Protocol,
		AgentVersion: build.Version,
		Capabilities: agentapi.Capabilities(),
	}
	hostinfo.Fill(&inv)
	gpus, err := monitor.Inventory(ctx)
	if err != nil {
		return inv, err
	}
	gpus.Fill(&inv)
	if !inv.Simulated && len(inv.GPUs) > 0 && inv.GPUs[0].VendorOf() == agentapi.NVIDIA {
		inv.Problems = append(inv.Problems, nvhost.Host{}.Problems(ctx, inv.Driver)...)
	}
	nodes, _ := hostinfo.NUMA("") // a kernel without NUMA reports none
	inv.NUMA = hostinfo.Nodes(nodes)
	inv.NICs = hostinfo.NICs("", f.underlay...)
	inv.HCAs = hostinfo.HCAs(rdmaTree("sys"))
	rdma, unlent := f.lend(inv.HCAs)
	inv.RDMA, inv.Problems = rdma, append(inv.Problems, unlent...)
	inv.Problems = append(inv.Problems, markUnderlay(inv.NICs, f.underlay)...)
	facts, err := f.dockerFacts(ctx)
	if err != nil {
		return inv, err
	}
	facts.Fill(&inv)
	if facts.RootDir != "" {
		if gb, err := hostinfo.DiskFreeGB(facts.RootDir); err == nil {
			inv.DiskGB = gb
		}
	}
	f.addScratch(ctx, &inv, facts.RootDir)
	f.shares.add(ctx, &inv)
	runtimes, lacking := facts.Runtimes(!inv.Simulated && len(inv.GPUs) > 0)
	if len(inv.GPUs) > 0 && inv.GPUs[0].VendorOf() == agentapi.AMD {
		runtimes, lacking = facts.WithoutRunsc(), nil
	}
	inv.Runtimes = runtimes
	inv.Problems = append(inv.Problems, lacking...)
	inv.Problems = append(inv.Problems, keepUnnamedSlices(&inv, facts)...)
	mode, problem := f.attachMode(facts, inv)
	inv.AttachMode = string(mode)
	if problem != nil && len(inv.GPUs) > 0 {
		inv.Problems = append(inv.Problems, *problem)
	}
	if f.ignored != nil {
		inv.Problems = append(inv.Problems, *f.ignored)
	}
	inv.LeaseUpMbps, inv.LeaseDownMbps = f.caps.UpMbps, f.caps.DownMbps
	if uncapped, err := new(firewall.Keeper).Uncapped(ctx); err == nil && uncapped != "" {
		inv.Problems = append(inv.Problems, agentapi.Problem{
			Code:     "connections_not_capped",
			Severity: "warn",
			Cause:    uncapped,
			Evidence: "kernel " + inv.Kernel,
			Fix:      "Run a kernel with CONFIG_NFT_CONNLIMIT, as those of Debian and Ubuntu are.",
		})
	}
	inv.KernelWireGuard = overlay.KernelWireGuard()
	inv.MultiNode, inv.Relayed = f.reachable(), true
	inv.Clean()
	return inv, nil
}

// rdmaTreeEnv names a folder that stands for the host's RDMA devices, for tests: its sys is read as /sys, and the
// device nodes that workloads get are in its dev/infiniband. Workloads then lock as much memory as the machine
// allows.
const rdmaTreeEnv = "MUSTER_RDMA_TREE"

// rdmaTree returns the path of a part of the tree that stands for the host's, "" for the host's own.
func rdmaTree(part string) string {
	if root := os.Getenv(rdmaTreeEnv); root != "" {
		return filepath.Join(root, part)
	}
	return ""
}

// lend marks the ports that workloads get.
func (f hostFlags) lend(all []agentapi.HCA) (*agentapi.RDMA, []agentapi.Problem) {
	tree := rdmaTree("sys")
	verbs := hostinfo.ReadVerbs(tree)
	verbs.Lockable = verbs.Lockable || tree != ""
	lent, unlent := hostinfo.Lend(all, f.fabricDevices, verbs, f.fabricProgram != "")
	if lent != nil {
		lent.NCCL = f.fabricNCCL != "" && lent.Link != agentapi.LinkEFA // needs a plug-in, which only images have
	}
	return lent, unlent
}

// lent returns the RDMA ports that a workload gets now.
func (f hostFlags) lent() []agentapi.HCA {
	all := hostinfo.HCAs(rdmaTree("sys"))
	f.lend(all)
	return slices.DeleteFunc(all, func(h agentapi.HCA) bool { return !h.Lent })
}

// partitions returns what puts RDMA ports into clusters' partitions, nil if the host does not.
func (f hostFlags) partitions() agent.Partitions {
	if f.fabricProgram == "" {
		return nil
	}
	return fabric.Manager{Program: f.fabricProgram}
}

// shared reports whether a simulated host shares its machine with other hosts and with people who work on it. A
// simulated host on a virtual machine of its own reports that it does not, and leases change that machine as they
// change a host with GPUs.
func shared(inv agentapi.Inventory) bool {
	return inv.Simulated && os.Getenv("MUSTER_FAKE_NVML_PLACED") == ""
}

// coresOf returns the layout of processors and GPUs, so that leases get processors near their GPUs. Simulated GPUs are
// near no processor, unless they have the machine to themselves.
func coresOf(inv agentapi.Inventory) cores.Host {
	if shared(inv) {
		return cores.Host{}
	}
	nodes, _ := hostinfo.NUMA("")
	return cores.Map(nodes, inv.GPUs)
}

// scratch returns the present folder for scratches, nil without one.
func (f hostFlags) scratch() *scratch.Store {
	if f.store == nil && f.scratchDir != "" {
		return scratch.New(f.scratchDir, f.scratchGB, "")
	}
	return f.store
}

// addScratch adds to inv the space that the host offers for scratch, or the problem why it offers none. If the scratch
// is on the disk of Docker's data, root, its space is subtracted from the disk space that the host offers.
func (f hostFlags) addScratch(ctx context.Context, inv *agentapi.Inventory, root string) {
	store := f.scratch()
	if store == nil {
		return
	}
	if p := store.Check(ctx); p != nil {
		inv.Problems = append(inv.Problems, *p)
		return
	}
	room, shared, err := roomOf(store, root)
	switch {
	case err != nil:
		inv.Problems = append(inv.Problems, agentapi.Problem{
			Code:     scratch.ProblemUnusable,
			Severity: "warn",
			Cause:    "The scratch disk does not say what it has: no scratch is offered.",
			Evidence: err.Error(),
			Fix:      "Look into the kernel's log (dmesg) for what it says of the disk.",
		})
		return
	case shared && !store.Bounded():
		inv.Problems = append(inv.Problems, agentapi.Problem{
			Code:     scratch.ProblemUnusable,
			Severity: "warn",
			Cause:    "Scratch would take the whole disk that Docker's data is on: none is offered.",
			Evidence: f.scratchDir + " and " + root + " are on one file system",
			Fix:      "Say how much of it is for scratch (--scratch-gb), or name a folder on another disk.",
		})
		return
	case shared:
		inv.DiskGB = max(0, inv.DiskGB-(room.Total-room.Taken)/1e9)
	}
	inv.ScratchGB = room.Total / 1e9
	if p := store.CheckVolumes(ctx); p != nil {
		inv.Problems = append(inv.Problems, *p)
	} else if mount, err := siblingProgram(mountProgram); err == nil {
		if p := fusemount.Check(mount); p != nil {
			inv.Problems = append(inv.Problems, *p)
		} else if err := firewall.MountsLimited(ctx); err != nil {
			inv.Problems = append(inv.Problems, *fusemount.Unlimited(err))
		}
	}
}

// roomOf returns the space of a store, and whether it is on the file system of root.
func roomOf(store *scratch.Store, root string) (room scratch.Room, shared bool, err error) {
	if room, err = store.Room(); err == nil && root != "" {
		shared, err = store.Shares(root)
	}
	return room, shared, err
}

// markUnderlay marks the ports that the operator has named for traffic between hosts, and adds a problem for those that
// cannot carry it.
func markUnderlay(nics []agentapi.NIC, names []string) []agentapi.Problem {
	var out []agentapi.Problem
	for _, name := range names {
		seen := "there is no such port"
		if i := slices.IndexFunc(nics, func(n agentapi.NIC) bool { return n.Name == name }); i >= 0 {
			nics[i].Underlay = true
			if nics[i].Up {
				continue
			}
			seen = "it is down"
		}
		out = append(out, agentapi.Problem{
			Code:     "underlay_down",
			Severity: "warn",
			Cause: fmt.Sprintf("Traffic between hosts cannot go by %s, which --underlay-interface names: it goes "+
				"another way.", name),
			Evidence: seen,
			Fix:      "Look at the cable and at ip link; or name another port.",
		})
	}
	return out
}

// reachable reports whether peers anywhere can reach this host without help.
func (f hostFlags) reachable() bool { return len(f.advertise) > 0 || hasPublicAddress() }

func (f hostFlags) dockerFacts(ctx context.Context) (container.Facts, error) {
	engine, err := container.New(container.Config{Docker: f.docker})
	if err != nil {
		return container.Facts{}, err
	}
	defer engine.Close()
	return engine.Facts(ctx), nil
}

// attachMode returns how GPUs get into workloads with the present Docker, and the problem with that: the mode of the
// flag, or else the best mode available. AttachNone is for simulated GPUs only: a real GPU that is not attached would
// be sold and not be usable.
func (f hostFlags) attachMode(facts container.Facts, inv agentapi.Inventory) (container.Attach, *agentapi.Problem) {
	gpus, asked := wholeGPUs(inv), container.Attach(f.attach)
	best, _ := facts.Attach(gpus)
	switch {
	case inv.Simulated && asked == "":
		return container.AttachNone, nil
	case inv.Simulated:
		return asked, nil
	case best == container.AttachNodes: // the only way
		return best, nil
	case asked == container.AttachNone:
		return asked, &agentapi.Problem{
			Code:     "attach_none",
			Severity: "bad",
			Cause:    "The GPUs would not be attached to workloads.",
			Evidence: "--attach none with real GPUs",
			Fix:      "Leave --attach away, or set it to cdi or nvidia.",
		}
	case len(gpus) == 0:
		return best, nil
	case asked == "", asked == best:
		return best, facts.AttachProblem(gpus)
	case asked == container.AttachNVIDIA && facts.NVIDIARuntime:
		return asked, nil
	}
	problem := facts.AttachProblem(gpus)
	if problem == nil {
		problem = &agentapi.Problem{
			Code:     "no_gpu_runtime",
			Cause:    "Docker cannot attach the GPUs to containers in the way that --attach demands.",
			Evidence: "--attach " + f.attach,
			Fix: "Leave --attach away, or set up what it demands. NVIDIA's runtime: nvidia-ctk runtime configure. CDI: " +
				facts.DescribeGPUs(),
		}
		if facts.HookRefuses != "" {
			problem.Evidence += "; " + facts.HookRefuses
		}
	}
	problem.Severity = "bad"
	return asked, problem
}

// wholeGPUs returns the UUIDs of the GPUs that are not split into instances: split GPUs have no names of their own in
// CDI. If all are split, it returns those of their slices.
func wholeGPUs(inv agentapi.Inventory) []string {
	var out, parts []string
	for _, g := range inv.GPUs {
		switch {
		case g.KindOf() == agentapi.KindSlice:
			parts = append(parts, g.UUID)
		case !g.MIG.Or(false):
			out = append(out, g.UUID)
		}
	}
	if len(out) == 0 {
		return parts
	}
	return out
}

// keepUnnamedSlices marks the slices that CDI cannot attach as in use, so that they are not offered, and returns the
// problem: after a new layout, the specification has to be generated again.
func keepUnnamedSlices(inv *agentapi.Inventory, facts container.Facts) []agentapi.Problem {
	var lacking []string
	for i := range inv.GPUs {
		g := &inv.GPUs[i]
		if inv.Simulated || g.KindOf() != agentapi.KindSlice || len(facts.Lacks([]string{g.UUID})) == 0 {
			continue
		}
		lacking = append(lacking, g.UUID)
		g.InUse = cmp.Or(g.InUse, "not in the CDI specification as it is now")
	}
	if len(lacking) == 0 {
		return nil
	}
	evidence := strings.Join(lacking, ", ")
	if wrong := facts.Wrong(lacking); len(wrong) > 0 {
		evidence += ": " + strings.Join(wrong[:min(3, len(wrong))], "; ")
	}
	return []agentapi.Problem{{
		Code:     "slices_not_in_cdi",
		Severity: "warn",
		Cause: fmt.Sprintf("The CDI specification does not name %d slices, or not as they are now: they are not offered.",
			len(lacking)),
		Evidence: evidence,
		Fix: "After each change of the layout run nvidia-smi -L, which makes the slices' nodes, and have the specification " +
			"written again. " + facts.DescribeGPUs(),
	}}
}

func (f hostFlags) check() error {
	switch container.Attach(f.attach) {
	case "", container.AttachCDI, container.AttachNVIDIA, container.AttachNone:
	default:
		return fmt.Errorf("--attach %s: want cdi, nvidia or none", f.attach)
	}
	if err := f.caps.Check(); err != nil {
		return fmt.Errorf("--lease-up-mbps, --lease-down-mbps, --lease-connections: %w", err)
	}
	if f.scratchGB < 0 || f.scratchGB > 1<<20 || (f.scratchGB > 0 && f.scratchDir == "") {
		return fmt.Errorf("--scratch-gb %d: want 0 to %d, beside --scratch-dir", f.scratchGB, 1<<20)
	}
	if f.ownerMB < 0 || f.ownerMB > 1<<20 {
		return fmt.Errorf("--owner-vram-mb %d: want 0 to %d", f.ownerMB, 1<<20)
	}
	for _, name := range f.underlay {
		if name == "" || len(name) > 15 || strings.ContainsAny(name, "/, \t") {
			return fmt.Errorf("--underlay-interface %q: want the name of a network port", name)
		}
	}
	for _, name := range f.fabricDevices {
		if name == "" || len(name) > 63 || strings.ContainsAny(name, "/:=, \t") {
			return fmt.Errorf("--fabric-device %q: want the name of an RDMA device, such as mlx5_0", name)
		}
	}
	if p := f.fabricProgram; p != "" {
		switch info, err := os.Stat(p); {
		case !filepath.IsAbs(p):
			return fmt.Errorf("--fabric-program %q: want an absolute path", p)
		case err != nil:
			return fmt.Errorf("--fabric-program: %w", err)
		case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
			return fmt.Errorf("--fabric-program %s: want a program that may be run", p)
		case len(f.fabricDevices) == 0:
			return errors.New("--fabric-program: name the devices with --fabric-device")
		}
	}
	for _, a := range f.advertise {
		if _, err := netip.ParseAddr(a); err != nil {
			return fmt.Errorf("--advertise: %w", err)
		}
	}
	return nil
}

// hasPublicAddress reports whether peers elsewhere can reach this machine without address translation.
func hasPublicAddress() bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			if public(p.Addr().Unmap()) {
				return true
			}
		}
	}
	return false
}

// public reports whether an address can be one of the internet's.
func public(ip netip.Addr) bool {
	return ip.IsGlobalUnicast() && !ip.IsPrivate() && !netip.MustParsePrefix("100.64.0.0/10").Contains(ip)
}
