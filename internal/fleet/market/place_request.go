package market

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market/query"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Request is a spec as placement reads it, with its query parsed, and its renter.
type Request struct {
	Renter  id.Org // its own hosts are excluded: organisations cannot rent from themselves
	Nodes   int
	GPUs    int // per node
	Query   query.Query
	Scope   Scope
	MinGbps float64
	DiskGB  int64 // per node
	// DiskLimited requires hosts that enforce disk_gb. Runtime is the required OCI runtime; "" = any.
	DiskLimited bool
	Runtime     string
	Entrypoint  bool        // requires hosts whose agent can replace an image's entry point
	User        bool        // requires hosts whose agent can run a node as another user than its image's
	ScratchGB   int64       // per node; 0 = none
	RDMA        bool        // whole hosts of one fabric that lend its RDMA ports; MinBusbw is the least bandwidth of these
	MinBusbw    float64     // Gbit/s; 0 = any
	Volumes     bool        // requires hosts that can mount volumes
	VolumeRanks bool        // also those that every rank writes
	Buckets     bool        // requires hosts that can mount renters' buckets
	LazyVolumes bool        // requires hosts that can mount volumes that are read on demand
	Shared      []string    // requires hosts that have the shared file systems of these names
	HostBytes   int         // of the message to its host that a node takes; see Spec.HostBytes
	VolumesGB   int64       // of the host's scratch per node, for volumes and buckets' caches; see ReadVolumes
	Duration    int64       // seconds; 0 = open-ended
	MaxRate     money.Micro // per hour for the whole gang; 0 = no limit
	// These fields are for replacing nodes of a running cluster. Joins: the new nodes join ranks on other hosts. Within:
	// they must be in this fabric (zero = any). On: they must be on this host, that of the other ranks (zero = any).
	// Exclude: they must not be on these hosts, which the cluster uses or has used. Models: they need one of these GPU
	// models, those of the lost nodes (empty = any).
	Joins   bool
	Within  id.Fabric
	On      id.Host
	Exclude []id.Host
	Models  []string
	// Cached are hosts that already have the image; among offers of equal price they are preferred. Planning sets it from
	// Image; "" prefers none.
	Cached map[id.Host]bool
	Image  string
	// Trust is whether hosts without a bond may join; Gang is the running ranks that the new ones join.
	Trust Trust
	Gang  []Member
}

// constraint is a condition that an offer must satisfy, by itself, to be a node of the gang.
type constraint struct {
	name string
	// ok checks the facts of a class, named checks the identity of a lot. Exactly one is set.
	ok    func(*facts) bool
	named func(*identity) bool
}

// notYourOwn is the constraint that keeps an organisation from paying itself, which would turn paid-in credit, such as
// a stolen card's, into a payout.
const notYourOwn = "not your own: an organisation cannot rent from itself"

// notLinked is the same constraint for organisations that appear to be the same party as the renter.
const notLinked = "not linked with you: an organisation cannot rent from itself"

// errOwnHost rejects a plan that contains a host of the renter, because the plan was made for another renter.
var errOwnHost = fault.New(fault.Conflict, "a host of this plan is your own: an organisation cannot rent from itself")

// constraints returns the constraints of the request in the order in which they are applied and explained: the renter's
// query term by term, then size, terms and network.
func (a *Request) constraints() []constraint {
	terms := a.Query.Terms()
	out := make([]constraint, 0, len(terms)+8)
	for i := range terms {
		t := &terms[i]
		c := constraint{name: t.String()}
		if t.Field.Kind == query.Identity {
			c.named = func(w *identity) bool { return t.Matches(w) }
		} else {
			c.ok = func(f *facts) bool { return t.Matches(f) }
		}
		out = append(out, c)
	}
	add := func(ok func(*facts) bool, format string, args ...any) {
		out = append(out, constraint{name: fmt.Sprintf(format, args...), ok: ok})
	}
	onHost := a.nodesOnHost()
	if !a.Renter.IsZero() {
		out = append(out, constraint{name: notYourOwn, named: func(w *identity) bool { return w.org != a.Renter }})
	}
	if len(a.Exclude) > 0 {
		out = append(out, constraint{name: "not a host of this cluster already", named: func(w *identity) bool {
			for _, h := range a.Exclude {
				if h == w.host {
					return false
				}
			}
			return true
		}})
	}
	if !a.On.IsZero() {
		out = append(out, constraint{
			name:  "the host of the other ranks",
			named: func(w *identity) bool { return w.host == a.On },
		})
	}
	if !a.takesAMD() {
		add(func(f *facts) bool { return f.vendor != agentapi.AMD }, noAMD)
	}
	if len(a.Models) > 0 {
		add(func(f *facts) bool { return slices.Contains(a.Models, f.model) }, "the same GPU: %s",
			strings.Join(a.Models, " or "))
	}
	add(func(f *facts) bool { return f.total >= a.GPUs }, "gpus_per_node = %d", a.GPUs)
	add(func(f *facts) bool { return f.free >= a.GPUs }, "%d free now", a.GPUs)
	if a.GPUs > 1 { // CUDA uses one MIG device in a process, so a node could not use several together
		add(func(f *facts) bool { return f.kind != agentapi.KindSlice }, "whole GPUs: a node has one slice at most")
	}
	if a.HostBytes > agentapi.SliceBytes {
		add(func(f *facts) bool { return f.kind != agentapi.KindSlice },
			"whole GPUs: a node takes %d bytes of the message to its host, and %d are the most for a slice", a.HostBytes,
			agentapi.SliceBytes)
	}
	add(func(f *facts) bool { return f.minGPUs <= a.GPUs }, "min_gpus <= %d", a.GPUs)
	if a.Duration > 0 {
		add(func(f *facts) bool { return f.longest() >= float64(a.Duration) }, "max_duration >= %d", a.Duration)
	} else {
		add(func(f *facts) bool { return f.maxDuration == 0 }, "no max_duration: the host takes no open-ended rentals")
	}
	add(func(f *facts) bool { return f.diskFreeGB >= a.DiskGB*int64(onHost) }, "disk_gb = %d", a.DiskGB)
	if a.DiskLimited {
		add(func(f *facts) bool { return f.diskLimited }, "disk_limited: the host holds nodes to their disk_gb")
	}
	if a.Runtime != "" {
		add(func(f *facts) bool { return query.HasWord(f.runtimes, a.Runtime) }, "runtime = %s", a.Runtime)
	}
	if a.Entrypoint {
		add(func(f *facts) bool { return f.entrypoint }, "entrypoint: the host's agent can replace an image's entry point")
	}
	if a.User {
		add(func(f *facts) bool { return f.users }, "user: the host's agent can run a node as another user")
	}
	if a.Volumes {
		add(func(f *facts) bool { return f.volumes }, "mounts: the host offers scratch and can mount volumes")
	}
	if a.VolumeRanks {
		add(func(f *facts) bool { return f.volumeRanks }, "mounts: the host's agent knows mode ranks")
	}
	if a.LazyVolumes {
		add(func(f *facts) bool { return f.lazyVolumes }, "mounts: the host can mount lazy volumes")
	}
	if a.Buckets {
		add(func(f *facts) bool { return f.buckets }, "mounts: the host can mount buckets")
	}
	for _, name := range a.Shared {
		add(func(f *facts) bool { return query.HasWord(f.shared, name) },
			"mounts: the host has the shared file system %s", name)
	}
	if a.VolumesGB > 0 {
		add(func(f *facts) bool { return f.scratchFreeGB >= a.VolumesGB*int64(onHost) },
			"mounts: %d GB of scratch for them", a.VolumesGB)
	}
	if a.ScratchGB > 0 {
		need := a.ScratchGB + a.VolumesGB
		add(func(f *facts) bool { return f.scratchFreeGB >= need*int64(onHost) }, "scratch_gb = %d", a.ScratchGB)
	}
	if a.RDMA {
		add(func(f *facts) bool { return f.rdmaGbps > 0 && !f.fabric.IsZero() },
			"network.fabric = rdma: the host lends the ports of a fabric")
		add(func(f *facts) bool { return f.total == f.hostTotal && f.total == a.GPUs && f.free == a.GPUs },
			"network.fabric = rdma: whole hosts, whose GPUs are all for one node")
		if a.MinBusbw > 0 {
			add(func(f *facts) bool { return f.rdmaReaches(a.MinBusbw) }, "network.min_busbw_gbps = %g", a.MinBusbw)
		}
	}
	add(func(f *facts) bool { return f.hasShare(a.GPUs) }, "cpu and memory for %d GPUs", a.GPUs)
	switch {
	case (a.Nodes > 1 || a.Joins) && a.Scope != ScopeHost:
		add(func(f *facts) bool { return f.multiNode }, "multi_node: reachable from other hosts")
		if a.MinGbps > 0 {
			add(func(f *facts) bool { return f.mayReach(a.MinGbps) }, "network.min_gbps = %g", a.MinGbps)
		}
		if !a.Within.IsZero() {
			add(func(f *facts) bool { return f.fabric == a.Within }, "the cluster's fabric")
		} else if a.Scope == ScopeFabric {
			add(func(f *facts) bool { return !f.fabric.IsZero() }, "network.scope = fabric")
		}
	case !a.Within.IsZero():
		add(func(f *facts) bool { return f.fabric == a.Within }, "the cluster's fabric")
	}
	return out
}

// noAMD is the constraint that keeps programs made for CUDA from AMD's GPUs, and a cluster from GPUs of two vendors.
const noAMD = "not of AMD: the query names no gpu_vendor, rocm_max, gpu_model, gpu_arch or host"

// takesAMD reports whether the query asks for AMD's GPUs, or for certain GPUs, whatever their vendor. Excluding some
// (gpu_model != …) does not.
func (a *Request) takesAMD() bool {
	return len(a.Models) > 0 || slices.ContainsFunc(a.Query.Terms(), func(t query.Term) bool {
		switch {
		case t.Field.Name == "gpu_vendor", t.Field.Name == "rocm_max":
			return true
		case t.Field.Name == "gpu_model", t.Field.Name == "gpu_arch", t.Field.Kind == query.Identity:
			return t.Op != query.Ne && t.Op != query.NotIn
		}
		return false
	})
}

// nodesOnHost returns how many nodes of the gang share a host.
func (a *Request) nodesOnHost() int {
	if a.Scope == ScopeHost {
		return a.Nodes
	}
	return 1
}

// hasShare reports whether the host still has the share of CPU and memory for n GPUs. Leases take proportional shares,
// so this fails only if the host itself has shrunk.
func (f *facts) hasShare(n int) bool {
	h := Host{CPUCores: f.cpuCores, RAMMB: f.ramMB}
	total, parts := oneGPU*int64(f.hostTotal), int64(n)*f.part
	if total == 0 {
		return false
	}
	return f.cpuLeft+cpuRounding >= float64(f.cpuCores)*float64(parts)/float64(total) &&
		f.ramLeftMB >= h.sellableRAMMB()*parts/total
}

// cpuRounding is a tolerance in cores: shares are rounded down to thousandths and added in floating point.
const cpuRounding = 0.01

// mayReach reports whether the host's network may provide gbps. It uses the measured bandwidth of the host's fabric,
// else that of the host's own line; an unknown bandwidth suffices.
func (f *facts) mayReach(gbps float64) bool {
	if f.busbwGbps.known && f.busbwGbps.v >= gbps {
		return true
	}
	if f.busbwGbps.known {
		return false
	}
	slow := func(m maybe) bool { return m.known && m.v < gbps*1000 }
	return !slow(f.netUpMbps) && !slow(f.netDownMbps)
}

// rdmaReaches reports whether the host's RDMA network is as fast: as it was measured, or, if it was not, by the speed
// of its ports.
func (f *facts) rdmaReaches(gbps float64) bool {
	if f.busbwRDMA.known {
		return f.busbwRDMA.v >= gbps
	}
	return f.rdmaGbps >= gbps
}
