package market

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market/query"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Request is what placement needs to know of a spec, with its query parsed, and of who asks.
type Request struct {
	Renter  id.Org // whose own hosts are left out: nobody rents from themselves
	Nodes   int
	GPUs    int // per node
	Query   query.Query
	Scope   Scope
	MinGbps float64
	DiskGB  int64 // per node
	// DiskLimited: only hosts that hold nodes to their disk_gb. Runtime is the OCI runtime it needs; "" = any.
	DiskLimited bool
	Runtime     string
	ScratchGB   int64       // per node; 0 = none
	Duration    int64       // seconds; 0 = open-ended
	MaxRate     money.Micro // per hour for the whole gang; 0 = no limit
	// For replacing nodes of a running cluster: they join others on other hosts, within one fabric (zero: any) or on the
	// one host of the others (zero: any), not on hosts it has or had, on GPUs like those that were lost (empty: any).
	Joins   bool
	Within  id.Fabric
	On      id.Host
	Exclude []id.Host
	Models  []string
	// Cached are hosts that hold the image already: they are taken first among those of equal price.
	Cached map[id.Host]bool
	// Trust says whether hosts without a bond may join; Gang is the ranks that the new ones join.
	Trust Trust
	Gang  []Member
}

// Request reads the spec for placement, for the org that would rent. The spec is valid.
func (s Spec) Request(renter id.Org) (Request, error) {
	q, err := query.Parse(s.GPU)
	if err != nil {
		return Request{}, err
	}
	a := Request{
		Renter: renter, Nodes: s.Nodes, GPUs: s.GPUsPerNode, Query: q, Scope: s.Network.Scope, MinGbps: s.Network.MinGbps,
		DiskGB: s.DiskGB, DiskLimited: s.DiskLimited, Runtime: s.Runtime, ScratchGB: s.ScratchGB, Duration: s.Duration(),
		Trust: s.Trust,
	}
	if s.MaxPricePerHour != nil {
		a.MaxRate = *s.MaxPricePerHour
	}
	return a, nil
}

// constraint is one thing an offer must satisfy, on its own, to be a node of the gang.
type constraint struct {
	name string
	// ok looks at the facts of a class; named at one lot. Exactly one is set.
	ok    func(*facts) bool
	named func(*identity) bool
}

// notYourOwn is what keeps an org from paying itself: it would turn paid-in credit, such as a stolen card's, into a
// payout.
const notYourOwn = "not your own: nobody rents from themselves"

// notLinked is the same for organisations that look like one's own.
const notLinked = "not linked with you: nobody rents from themselves"

// errOwnHost refuses a plan that was not made for its renter.
var errOwnHost = fault.New(fault.Conflict, "a host of this plan is your own: nobody rents from themselves")

// constraints are those of the ask, in the order they are applied and explained: the renter's query term by term, then
// size, terms and network.
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
	if len(a.Models) > 0 {
		add(func(f *facts) bool { return slices.Contains(a.Models, f.model) }, "the same GPU: %s",
			strings.Join(a.Models, " or "))
	}
	add(func(f *facts) bool { return f.total >= a.GPUs }, "gpus_per_node = %d", a.GPUs)
	add(func(f *facts) bool { return f.free >= a.GPUs }, "%d free now", a.GPUs)
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
	if a.ScratchGB > 0 {
		add(func(f *facts) bool { return f.scratchFreeGB >= a.ScratchGB*int64(onHost) }, "scratch_gb = %d", a.ScratchGB)
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

// nodesOnHost is how many nodes of the gang share a host.
func (a *Request) nodesOnHost() int {
	if a.Scope == ScopeHost {
		return a.Nodes
	}
	return 1
}

// hasShare reports whether the host still has the CPU and memory that go with n GPUs. Leases take shares, so it fails
// only after the host itself shrank.
func (f *facts) hasShare(n int) bool {
	h := Host{CPUCores: f.cpuCores, RAMMB: f.ramMB}
	total := int64(f.hostTotal)
	if total == 0 {
		return false
	}
	return f.cpuLeft+cpuRounding >= float64(f.cpuCores)*float64(n)/float64(total) &&
		f.ramLeftMB >= h.sellableRAMMB()*int64(n)/total
}

// cpuRounding, in cores: shares are floored to a thousandth and summed in floating point.
const cpuRounding = 0.01

// mayReach reports whether the network between this host and others is not known to be slower than gbps: within its
// fabric, or through its own line.
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
