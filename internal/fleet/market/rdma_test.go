package market

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/id"
)

// lending makes the host one of a fabric that lends its RDMA ports.
func (h *Host) lending(fabric id.Fabric, gbps float64) *Host {
	h.Fabric, h.FabricName, h.RDMAGbps, h.RDMARails = fabric, "rack", gbps, int(gbps/400)
	return h
}

// linked sets of what kind its ports are.
func (h *Host) linked(kind string) *Host {
	h.RDMALink = kind
	return h
}

// RDMA is rented with whole hosts of one fabric that lend their ports, and only if no other organisation rents any of
// them.
func TestRDMAPlacement(t *testing.T) {
	t.Parallel()
	fabric, elsewhere, renter, other := id.New[id.Fabric](), id.New[id.Fabric](), id.New[id.Org](), id.New[id.Org]()
	rack := func(hosts ...*Host) *Snapshot { return snapshotOf(hosts...) }
	operator := id.New[id.Org]() // gangs of several operators need bonds
	four := func(name string) *Host {
		h := newHost(name, "H100", 4, 2_000_000)
		h.Org = operator
		return h
	}
	for _, tc := range []struct {
		name    string
		s       *Snapshot
		tenants map[id.Fabric][]id.Org
		min     float64
		gpus    int
		why     string // of the exclusion; "" = it fits
	}{
		{"two whole hosts", rack(four("a").lending(fabric, 1600), four("b").lending(fabric, 1600)), nil, 0, 4, ""},
		{"ours already", rack(four("a").lending(fabric, 1600), four("b").lending(fabric, 1600)),
			map[id.Fabric][]id.Org{fabric: {renter}}, 0, 4, ""},
		{"another's", rack(four("a").lending(fabric, 1600), four("b").lending(fabric, 1600)),
			map[id.Fabric][]id.Org{fabric: {other}}, 0, 4, "no other organisation"},
		{"ours and another's", rack(four("a").lending(fabric, 1600), four("b").lending(fabric, 1600)),
			map[id.Fabric][]id.Org{fabric: {renter, other}}, 0, 4, "no other organisation"},
		{"InfiniBand and RoCE", rack(four("a").lending(fabric, 1600).linked("infiniband"),
			four("b").lending(fabric, 1600).linked("roce")), nil, 0, 4, "of one kind"},
		{"all RoCE", rack(four("a").lending(fabric, 1600).linked("roce"), four("b").lending(fabric, 1600).linked("roce"),
			four("c").lending(elsewhere, 1600).linked("infiniband")), nil, 0, 4, ""},
		{"another fabric is taken", rack(four("a").lending(fabric, 1600), four("b").lending(fabric, 1600)),
			map[id.Fabric][]id.Org{elsewhere: {other}}, 0, 4, ""},
		{"part of a host", rack(four("a").lending(fabric, 1600), four("b").lending(fabric, 1600)), nil, 0, 2, "whole hosts"},
		{"a host with a lease", rack(four("a").lending(fabric, 1600).taken(1), four("b").lending(fabric, 1600)), nil, 0, 3,
			"whole hosts"},
		{"no ports", rack(four("a").lending(fabric, 0), four("b").lending(fabric, 1600)), nil, 0, 4, "lends the ports"},
		{"two fabrics", rack(four("a").lending(fabric, 1600), four("b").lending(elsewhere, 1600)), nil, 0, 4, "fabric"},
		{"too slow", rack(four("a").lending(fabric, 400), four("b").lending(fabric, 1600)), nil, 800, 4, "min_busbw_gbps"},
		{"fast enough", rack(four("a").lending(fabric, 800), four("b").lending(fabric, 1600)), nil, 800, 4, ""},
	} {
		tc.s.SetGangs(&Gangs{Tenants: tc.tenants})
		a := mustRequest(t, func(s *Spec) {
			s.Nodes, s.GPUsPerNode, s.Network = 2, tc.gpus, Network{Scope: ScopeFabric, Fabric: "rdma", MinBusbwGbps: tc.min}
		})
		a.Renter = renter
		p, why := Place(tc.s, a)
		if (len(p.Nodes) == 2) != (tc.why == "") {
			t.Errorf("%s: %d nodes, %+v", tc.name, len(p.Nodes), why)
			continue
		}
		if tc.why == "" {
			for _, n := range p.Nodes {
				if n.Tenant != renter || n.Fabric != fabric {
					t.Errorf("%s: rank %d claims %s for %s", tc.name, n.Rank, n.Fabric, n.Tenant)
				}
			}
			sets := p.ClaimSets(id.New[id.Cluster](), func(int) id.Lease { return id.New[id.Lease]() })
			if sets[0].Fabric != fabric || sets[1].Tenant != renter {
				t.Errorf("%s: claims %+v", tc.name, sets)
			}
			continue
		}
		var names []string
		for _, x := range why.Exclusions {
			names = append(names, x.Constraint)
		}
		if !strings.Contains(strings.Join(names, "\n"), tc.why) {
			t.Errorf("%s: explained with %q", tc.name, names)
		}
	}
	plain := mustRequest(t, func(s *Spec) { s.Nodes, s.GPUsPerNode = 2, 2 })
	s := rack(four("a").lending(fabric, 1600), four("b").lending(fabric, 1600))
	s.SetGangs(&Gangs{Tenants: map[id.Fabric][]id.Org{fabric: {other}}})
	if p, why := Place(s, plain); len(p.Nodes) != 2 || !p.Nodes[0].Tenant.IsZero() {
		t.Errorf("a cluster without RDMA: %+v, %+v", p.Nodes, why)
	}
}

// What a spec may say of RDMA. The scope that reaches becomes the fabric by itself.
func TestRDMASpec(t *testing.T) {
	t.Parallel()
	for text, bad := range map[string]string{
		`{"nodes":2,"network":{"fabric":"rdma"}}`:                                 "",
		`{"nodes":2,"network":{"fabric":"rdma","min_busbw_gbps":400}}`:            "",
		`{"nodes":2,"network":{"fabric":"rdma","scope":"fabric"}}`:                "",
		`{"nodes":2,"network":{"fabric":"rdma","scope":"host"}}`:                  "network.scope",
		`{"network":{"fabric":"rdma"}}`:                                           "network.fabric",
		`{"nodes":2,"network":{"fabric":"roce"}}`:                                 "network.fabric",
		`{"nodes":2,"network":{"min_busbw_gbps":400}}`:                            "network.min_busbw_gbps",
		`{"nodes":2,"network":{"fabric":"rdma","min_busbw_gbps":-1}}`:             "network.min_busbw_gbps",
		`{"nodes":2,"network":{"fabric":"rdma"},"runtime":"runsc"}`:               "runtime",
		`{"nodes":2,"network":{"fabric":"rdma","min_busbw_gbps":400,"pkey":"1"}}`: "network.pkey",
	} {
		s, err := ParseQuoteSpec([]byte(text))
		switch {
		case bad == "" && (err != nil || s.Network.Scope != ScopeFabric || !s.Network.RDMA()):
			t.Errorf("%s: %+v, %v", text, s.Network, err)
		case bad != "" && (err == nil || !strings.Contains(err.Error(), bad)):
			t.Errorf("%s: %v", text, err)
		}
	}
}
