package cluster

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
)

// reportCase is a node as it is stored, and a report about it.
type reportCase struct {
	row   dbq.HostLeasesRow
	now   time.Time
	clock dbq.ReportClockRow
	sync  agentapi.Sync
}

// pick draws one of several values.
func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// statusDraws draws a value for each field of a status. A field that no report may change a cluster by is absent, with
// the reason in irrelevant.
var statusDraws = map[string]func(*rand.Rand, *agentapi.LeaseStatus){
	"State": func(r *rand.Rand, l *agentapi.LeaseStatus) {
		l.State = pick(r, agentapi.NodePulling, agentapi.NodeStarting, agentapi.NodeJoining, agentapi.NodeReady,
			agentapi.NodeStopping, agentapi.NodeStopped, agentapi.NodeFailed)
	},
	"Reason": func(r *rand.Rand, l *agentapi.LeaseStatus) {
		l.Reason = pick(r, "", "", agentapi.ReasonExited, string(lifecycle.ReasonScratchFailed), "nonsense")
	},
	"WGKey": func(r *rand.Rand, l *agentapi.LeaseStatus) {
		l.WGKey = pick(r, "", "k", "other", strings.Repeat("k", 65))
	},
	"Endpoints": func(r *rand.Rand, l *agentapi.LeaseStatus) {
		l.Endpoints = pick(r, nil, []string{"192.0.2.1:1"}, slices.Repeat([]string{"192.0.2.2:1"}, 12))
	},
	"Preflight": func(r *rand.Rand, l *agentapi.LeaseStatus) {
		l.Preflight = pick(r, nil, &agentapi.Preflight{OK: true}, &agentapi.Preflight{Detail: "slow"},
			&agentapi.Preflight{Detail: strings.Repeat("x", 70<<10)})
	},
	"ImageDigest": func(r *rand.Rand, l *agentapi.LeaseStatus) {
		l.ImageDigest = pick(r, "", "sha256:0", strings.Repeat("x", 200))
	},
	"AtBarrier": func(r *rand.Rand, l *agentapi.LeaseStatus) { l.AtBarrier = pick(r, true, false) },
	"Started":   func(r *rand.Rand, l *agentapi.LeaseStatus) { l.Started = pick(r, true, false) },
	"Good":      func(r *rand.Rand, l *agentapi.LeaseStatus) { l.Good = pick(r, true, false) },
	"Trouble": func(r *rand.Rand, l *agentapi.LeaseStatus) {
		l.Trouble = pick(r, "", string(lifecycle.ReasonHostLost))
	},
	"StartsAgain": func(r *rand.Rand, l *agentapi.LeaseStatus) { l.StartsAgain = pick(r, true, false) },
	"PeersDown":   func(r *rand.Rand, l *agentapi.LeaseStatus) { l.PeersDown = pick(r, nil, []int{1}) },
	"ExitCode":    func(r *rand.Rand, l *agentapi.LeaseStatus) { l.ExitCode = pick(r, nil, new(int), ptr(7)) },
	"Leaving":     func(r *rand.Rand, l *agentapi.LeaseStatus) { l.Leaving = pick(r, "", "AWS: stop") },
	"NotUploaded": func(r *rand.Rand, l *agentapi.LeaseStatus) {
		l.NotUploaded = pick(r, nil, []agentapi.NotUploaded{{Name: "results"}})
	},
	"OwnerMB":       func(r *rand.Rand, l *agentapi.LeaseStatus) { l.OwnerMB = pick[int64](r, 0, 5) },
	"Gone":          func(r *rand.Rand, l *agentapi.LeaseStatus) { l.Gone = r.IntN(8) == 0 },
	"TroubleDetail": func(r *rand.Rand, l *agentapi.LeaseStatus) { l.TroubleDetail = pick(r, "", "fell off the bus") },
}

var irrelevant = map[string]string{
	"LeaseRef":        "names the lease",
	"Detail":          "only goes with a state",
	"Progress":        "is stored with the status",
	"StartBootMS":     "only goes with Started",
	"GoodSinceBootMS": "is stored with the status",
	"PeersDownSince":  "only goes with PeersDown",
	"Paths":           "is stored with the status",
	"ExitBootMS":      "only goes with ExitCode",
	"LogKept":         "is stored with the status",
	"Traffic":         "belongs to the host",
	"GPUsFree":        "is judged for all leases of a report together: see TestAdmitUploads_AreBounded",
}

func ptr[T any](v T) *T { return &v }

// drawReport makes a stored node and a report about it.
func drawReport(r *rand.Rand) reportCase {
	now := time.UnixMilli(1_700_000_000_000).UTC()
	lease := id.New[id.Lease]()
	st := agentapi.LeaseStatus{LeaseRef: agentapi.LeaseRef{Lease: lease.String(), Epoch: 1}}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for k := range statusDraws {
			if !yield(k) {
				return
			}
		}
	}) {
		statusDraws[name](r, &st)
	}
	past := now.Add(-time.Minute)
	n := dbq.Node{
		ID:        id.New[id.Node](),
		LeaseID:   lease,
		Epoch:     1,
		Endpoints: []string{},
		Preflight: []byte("{}"),
		State: string(pick(r, lifecycle.NodePending, lifecycle.NodePulling, lifecycle.NodeStarting, lifecycle.NodeJoining,
			lifecycle.NodeReady, lifecycle.NodeLost, lifecycle.NodeStopped,
			lifecycle.NodeFailed)),
		WgKey:           pick(r, "", "k"),
		OwnerUseTold:    pick(r, true, false),
		LeavingTold:     pick(r, true, false),
		UploadsLostTold: pick(r, true, false),
		CapTold:         pick(r, nil, ptr(now.Add(time.Hour))),
	}
	row := dbq.HostLeasesRow{
		LeaseID: lease, LeaseEpoch: 1, NodeCount: pick[int32](r, 1, 2), ImageDigest: pick(r, "", "sha256:0"),
		GoAt: pick(r, nil, &past), CappedUntil: pick(r, nil, ptr(now.Add(time.Hour))),
		NodeStatus: dbq.NodeStatus{Epoch: 1, BootID: "b", Good: pick(r, true, false), PeersDown: []int32{},
			ReportedAt: past, LastGoodMs: past.UnixMilli()},
	}
	if row.GoAt != nil && pick(r, true, false) {
		n.StartedAt = &past
	}
	if n.StartedAt != nil && pick(r, true, false) {
		n.ExitCode, n.ExitAt = ptr[int32](0), &past
	}
	if r.IntN(8) == 0 {
		row.LeaseEndedAt, row.StopAt = &past, &past
	}
	row.Node = n
	return reportCase{
		row: row, now: now,
		clock: dbq.ReportClockRow{Now: now, BootMs: 100_000, ServerMs: now.UnixMilli()},
		sync: agentapi.Sync{BootID: "b", BootMS: 100_000, Full: true, Leases: []agentapi.LeaseStatus{st},
			Revision: pick[int64](r, 0, 1)},
	}
}

// apply reads the report and applies it to a change of the node, as under the lock.
func (c reportCase) apply(t *testing.T) (leaseReport, *lockedCluster) {
	t.Helper()
	rep, late := readLease(c.row, c.sync, c.clock, c.now, nil)
	if late {
		t.Fatal("late")
	}
	n := &node{Node: c.row.Node, status: c.row.NodeStatus, capped: c.row.CappedUntil, ended: c.row.LeaseEndedAt,
		gone: c.row.LeaseGoneAt, required: true}
	cfg := Config{}.withDefaults()
	nodes := []*node{n}
	for len(nodes) < int(c.row.NodeCount) {
		nodes = append(nodes, &node{})
	}
	x := newLocked(&cfg, c.now, &dbq.Cluster{}, market.Spec{}, nodes)
	x.row.GoAt, x.row.ImageDigest = c.row.GoAt, c.row.ImageDigest
	x.reports.applyReport(rep)
	return rep, x
}

// A report that changes anything under the cluster's lock must be found to need the lock: else it is dropped unread.
func TestReportFacts_WhatIsAppliedNeedsTheLock(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	applied := map[string]int{}
	for i := range 5_000 {
		c := drawReport(r)
		rep, x := c.apply(t)
		what := ""
		switch n := x.members.nodes[0]; {
		case !cmp.Equal(n.Node, c.row.Node, cmpopts.EquateComparable(id.Lease{}, id.Node{}, id.Host{}, id.Cluster{})):
			what = "node"
		case x.row.ImageDigest != c.row.ImageDigest:
			what = "cluster"
		case n.dirty, len(x.out.raise) > 0, len(x.out.events) > 0, len(x.out.writes) > 0, len(x.out.freed) > 0:
			what = "effects"
		}
		if applied[what]++; what != "" && !rep.needsLock() {
			t.Fatalf("case %d changes the %s and is dropped: %s of %s", i, what, show(c.sync.Leases[0]), show(c.row))
		}
	}
	for _, what := range []string{"", "node", "cluster", "effects"} {
		if applied[what] == 0 {
			t.Errorf("no case changes %q: the draw is too narrow: %v", what, applied)
		}
	}
}

// A report that was applied once does not need the lock again: otherwise every report of the node would take it.
func TestReportFacts_AreNewOnce(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 5_000 {
		c := drawReport(r)
		if c.row.LeaseEndedAt != nil {
			continue
		}
		rep, x := c.apply(t)
		if c.row.Node = x.members.nodes[0].Node; lifecycle.NodeState(c.row.Node.State) == lifecycle.NodeLost {
			continue // assess brings it back, or not
		}
		c.row.ImageDigest = x.row.ImageDigest
		trouble, _ := troubleOf(*rep.now)
		c.row.NodeStatus.Good, c.row.NodeStatus.Trouble = !unwell(*rep.now), string(trouble)
		c.row.NodeStatus.PeersDown, c.row.NodeStatus.PeersFromMs = rep.down, rep.downFrom
		again, _ := readLease(c.row, c.sync, c.clock, c.now, nil)
		if again.needsLock() {
			for _, f := range reportFacts {
				if f.changed(x.members.known(x.members.nodes[0]), again) {
					t.Errorf("%q is new again", f.name)
				}
			}
			t.Fatalf("case %d: %s of %s", i, show(c.sync.Leases[0]), show(c.row))
		}
	}
}

// Every field of a status is drawn above, or it says why no report changes a cluster by it.
func TestReportFacts_EveryFieldIsConsidered(t *testing.T) {
	t.Parallel()
	typ := reflect.TypeFor[agentapi.LeaseStatus]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		if _, drawn := statusDraws[name]; drawn == (irrelevant[name] != "") {
			t.Errorf("LeaseStatus.%s: draw it in statusDraws or say in irrelevant why not", name)
		}
	}
}

func show(v any) string {
	b, _ := json.Marshal(v)
	return string(b[:min(len(b), 2000)])
}

func TestSameJSON(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{`[{"rank":1,"path":"lan"}]`, `[{"path": "lan", "rank": 1}]`, true}, // as PostgreSQL returns it
		{`[{"rank":1,"path":"lan"}]`, `[{"path": "relay", "rank": 1}]`, false},
		{`{"step":"pull"}`, `{"step": "pull"}`, true},
		{`[]`, `[]`, true},
	} {
		if got := sameJSON([]byte(tc.a), []byte(tc.b)); got != tc.same {
			t.Errorf("sameJSON(%s, %s) is %t", tc.a, tc.b, got)
		}
	}
}
