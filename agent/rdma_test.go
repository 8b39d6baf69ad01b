package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
)

// The host gives its RDMA ports to a node that asks for them, is alone on the host, and only while it lends any.
func TestWhoGetsRDMA(t *testing.T) {
	t.Parallel()
	rail := []agentapi.HCA{{Device: "mlx5_0", Port: 1, Verbs: "uverbs0", Lent: true}}
	lend := func(ports []agentapi.HCA) func() []agentapi.HCA { return func() []agentapi.HCA { return ports } }
	for _, tc := range []struct {
		name   string
		fabric string
		lent   func() []agentapi.HCA
		other  string // workload of another lease on the host
		want   int
		detail string
	}{
		{"not asked for", "", lend(rail), "", 0, ""},
		{"asked for", agentapi.FabricRDMA, lend(rail), "", 1, ""},
		{"another node is on the host", agentapi.FabricRDMA, lend(rail), "c0ffee", 0, "is on it"},
		{"another node was on the host", agentapi.FabricRDMA, lend(rail), "removed", 1, ""},
		{"another node, not asked for", "", lend(rail), "c0ffee", 0, ""},
		{"nothing is up", agentapi.FabricRDMA, lend(nil), "", 0, "is up"},
		{"nothing is lent", agentapi.FabricRDMA, nil, "", 0, "lends no"},
		{"of a newer server", "rdma2", lend(rail), "", 0, "does not know"},
	} {
		own := &run{ref: agentapi.LeaseRef{Lease: "lease_own", Epoch: 1}, rec: record{WorkID: "mine"}}
		other := &run{ref: agentapi.LeaseRef{Lease: "lease_other", Epoch: 1},
			rec: record{WorkID: tc.other, Down: tc.other == "removed"}}
		ports := &rdmaPorts{lent: tc.lent, runs: &runs{leases: map[string]*lease{
			"lease_own": {runs: []*run{own}}, "lease_other": {runs: []*run{other}},
		}}}
		got, err := ports.of(t.Context(), own, agentapi.LeaseSpec{Network: agentapi.Network{Fabric: tc.fabric}})
		if len(got) != tc.want || (err == nil) != (tc.detail == "") {
			t.Errorf("%s: %+v, %v", tc.name, got, err)
			continue
		}
		var refusal container.Refusal
		if err != nil && (!errors.As(err, &refusal) || refusal.Reason != agentapi.ReasonNotOffered ||
			!strings.Contains(refusal.Detail, tc.detail)) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// switchboard stands for the subnet manager and the ports' tables.
type switchboard struct {
	did  []string
	fail error
}

func (s *switchboard) Join(_ context.Context, p agentapi.Partition, ports []agentapi.HCA) ([]agentapi.HCA, error) {
	s.did = append(s.did, fmt.Sprintf("join %#x %d", p.PKey, len(ports)))
	if s.fail != nil {
		return nil, s.fail
	}
	joined := slices.Clone(ports)
	joined[0].PKeyIndex = agentapi.Known(1)
	return joined, nil
}

func (s *switchboard) Leave(_ context.Context, p agentapi.Partition, ports []agentapi.HCA) error {
	s.did = append(s.did, fmt.Sprintf("leave %#x %d", p.PKey, len(ports)))
	return s.fail
}

func (s *switchboard) Check(agentapi.Partition, []agentapi.HCA) error { return s.fail }

// The ports of a cluster with a partition are handed out once they have joined it, and leave it at the end of a run
// that used them, unless a later run has joined already.
func TestPartitionOfARun(t *testing.T) {
	t.Parallel()
	spec := agentapi.LeaseSpec{Network: agentapi.Network{Fabric: agentapi.FabricRDMA,
		Partition: &agentapi.Partition{Fabric: "rack", Cluster: "cluster_a", PKey: 0x2001}}}
	own := &run{ref: agentapi.LeaseRef{Lease: "lease_own", Epoch: 1}}
	board := &switchboard{}
	ports := &rdmaPorts{
		lent: func() []agentapi.HCA {
			return []agentapi.HCA{{Device: "mlx5_0", Port: 1, Verbs: "uverbs0", Lent: true}}
		},
		runs: &runs{leases: map[string]*lease{"lease_own": {runs: []*run{own}}}},
		log:  slog.New(slog.DiscardHandler),
	}
	var refusal container.Refusal
	if got, err := ports.of(t.Context(), own, spec); !errors.As(err, &refusal) {
		t.Errorf("a host without partitions hands out %+v, %v", got, err)
	}
	ports.partitions = board
	board.fail = errors.New("no subnet manager")
	if got, err := ports.of(t.Context(), own, spec); got != nil || err == nil || errors.As(err, &refusal) {
		t.Errorf("ports that did not join, which may be tried again: %+v, %v", got, err)
	}
	board.fail = nil
	if got, err := ports.of(t.Context(), own, spec); err != nil || len(got) != 1 || got[0].PKeyIndex.Or(0) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	used, unused := record{WorkID: "mine", Spec: spec}, record{Spec: spec}
	plain := record{WorkID: "mine"}
	board.did = nil
	for _, v := range []view{{rec: unused}, {rec: plain}, {rec: used, superseded: true}} {
		ports.leave(t.Context(), own, v)
	}
	if len(board.did) > 0 {
		t.Errorf("ports that a run does not use, or another does: %q", board.did)
	}
	board.fail = errors.New("no subnet manager") // the run ends all the same
	ports.leave(t.Context(), own, view{rec: used})
	running, over := used, used
	running.Started, over.Started, over.Outcome = true, true, &outcome{}
	for _, tc := range []struct {
		rec  record
		fail error
		lost string
	}{
		{running, nil, ""},
		{running, errors.New("mlx5_0/1 is a member of 0xffff"), "mlx5_0/1 is a member of 0xffff"},
		{used, errors.New("it has not started"), ""},
		{over, errors.New("it has ended"), ""},
	} {
		board.fail = tc.fail
		v := view{rec: tc.rec, overlay: true}
		v.partitionLost = ports.lost(v)
		if v.partitionLost != tc.lost {
			t.Errorf("%v: lost %q", tc.fail, v.partitionLost)
		}
		if well := v.well(step{do: actWatch}, ""); well != (tc.rec.Started && tc.lost == "") {
			t.Errorf("%v: well %v", tc.fail, well)
		}
	}
	if want := []string{"leave 0x2001 1"}; !slices.Equal(board.did, want) {
		t.Errorf("did %q", board.did)
	}
}
