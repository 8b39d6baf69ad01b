package market

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/id"
)

// explain counts, over the whole snapshot, how many hosts each constraint excludes. A host is excluded by the
// constraint at which the last of its offers failed.
func (p *placing) explain() Explain {
	if p.unbonded != nil {
		p.constraints = append(p.constraints, p.bondConstraint())
	}
	fell, left := p.fates()
	out := Explain{Hosts: p.s.Len(), Unmeasured: p.unmeasured()}
	remain := out.Hosts
	note := func(name string, excluded int) {
		remain -= excluded
		out.Exclusions = append(out.Exclusions, client.Exclusion{Constraint: name, Excluded: excluded, Left: remain})
	}
	for i, c := range p.constraints {
		if fell[i] > 0 {
			note(c.name, fell[i])
		}
	}
	switch {
	case remain == 0:
	case p.tooDear > 0:
		note(fmt.Sprintf("max_price_per_hour = %s: the cheapest costs %s", p.request.MaxRate, p.tooDear), remain)
	case p.request.Scope == ScopeHost:
		note(fmt.Sprintf("network.scope = host: %d GPUs in one host", p.request.Nodes*p.request.GPUs), remain)
	case p.request.Scope == ScopeFabric:
		note(fmt.Sprintf("network.scope = fabric: %d hosts in one fabric, the largest has %d", p.request.Nodes,
			largest(left)), remain)
	default:
		note(fmt.Sprintf("nodes = %d: distinct hosts", p.request.Nodes), remain)
	}
	return out
}

// fates returns how many hosts failed at each constraint, and for each fabric how many hosts satisfied all constraints.
func (p *placing) fates() (fell []int, left map[id.Fabric]int) {
	fell = make([]int, len(p.constraints)+1)
	left = map[id.Fabric]int{}
	of := make(map[*class]int, len(p.s.classes))
	for _, c := range p.s.classes {
		of[c] = p.fate(c)
	}
	for _, e := range p.s.hosts {
		last := 0
		for _, l := range e.lots {
			n := of[l.class]
			for i := range n {
				if named := p.constraints[i].named; named != nil && !named(&l.who) {
					n = i
					break
				}
			}
			last = max(last, n)
		}
		fell[last]++
		if last == len(p.constraints) {
			left[e.host.Fabric]++
		}
	}
	return fell, left
}

// fate returns the index of the first constraint that the class fails, or the number of constraints if there is none.
func (p *placing) fate(c *class) int {
	for i := range p.constraints {
		if ok := p.constraints[i].ok; ok != nil && !ok(&c.facts) {
			return i
		}
	}
	return len(p.constraints)
}

func largest(left map[id.Fabric]int) int {
	most := 0
	for fid, n := range left {
		if !fid.IsZero() {
			most = max(most, n)
		}
	}
	return most
}

// unmeasured names the hosts that satisfy all constraints and of whose network nothing is known, if the request wants a
// bandwidth between hosts.
func (p *placing) unmeasured() (names []string) {
	if p.request.MinGbps == 0 || p.request.Nodes < 2 && !p.request.Joins || p.request.Scope == ScopeHost {
		return nil
	}
	for _, c := range p.s.classes {
		if c.networkKnown() || p.fate(c) < len(p.constraints) {
			continue
		}
		for _, l := range c.lots {
			names = append(names, l.who.name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), maxUnmeasured)]
}

// networkKnown reports whether the bandwidth of the host's fabric, or of its own line, is known.
func (f *facts) networkKnown() bool {
	return f.busbwGbps.known || f.netUpMbps.known && f.netDownMbps.known
}

// Unmeasured names those of the hosts whose network to others has not been measured.
func (m *Market) Unmeasured(hosts []id.Host) (names []string) {
	m.view.mu.RLock()
	defer m.view.mu.RUnlock()
	for _, h := range hosts {
		e := m.view.snap.hosts[h]
		if e == nil || len(e.lots) == 0 || e.lots[0].class.networkKnown() || slices.Contains(names, e.host.Name) {
			continue
		}
		names = append(names, e.host.Name)
	}
	return names
}
