package cluster_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/idem"
)

// oldSync is a report as the first agents made it: what was added since is not in it.
type oldSync struct {
	AgentVersion string                 `json:"agent_version"`
	BootID       string                 `json:"boot_id"`
	BootMS       int64                  `json:"boot_ms"`
	ControlEpoch int64                  `json:"control_epoch"`
	Revision     int64                  `json:"revision"`
	Full         bool                   `json:"full"`
	Leases       []oldStatus            `json:"leases"`
	Segments     []agentapi.Segment     `json:"segments,omitempty"`
	Health       []agentapi.HealthEvent `json:"health,omitempty"`
	Seq          uint64                 `json:"seq"`
}

type oldStatus struct {
	agentapi.LeaseRef
	State       agentapi.NodeState  `json:"state"`
	Reason      string              `json:"reason,omitempty"`
	Detail      string              `json:"detail,omitempty"`
	Progress    agentapi.Progress   `json:"progress"`
	WGKey       string              `json:"wg_key,omitempty"`
	Endpoints   []string            `json:"endpoints,omitempty"`
	Preflight   *agentapi.Preflight `json:"preflight,omitempty"`
	ImageDigest string              `json:"image_digest,omitempty"`
	AtBarrier   bool                `json:"at_barrier,omitempty"`
	Started     bool                `json:"started,omitempty"`
	Good        bool                `json:"good,omitempty"`
	PeersDown   []int               `json:"peers_down,omitempty"`
	ExitCode    *int                `json:"exit_code,omitempty"`
	LogKept     bool                `json:"log_kept,omitempty"`
	Gone        bool                `json:"gone,omitempty"`
}

// asOfBefore is what a server understands of a report that an agent of the first days made of the same facts.
func asOfBefore(t testing.TB, s agentapi.Sync) agentapi.Sync {
	t.Helper()
	var old oldSync
	var out agentapi.Sync
	for _, step := range []struct{ from, to any }{{s, &old}, {&old, &out}} {
		b, err := json.Marshal(step.from)
		if err == nil {
			err = json.Unmarshal(b, step.to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// A host whose agent is too old keeps its leases: they are confirmed, paid and extended as ever, and end when the
// desired state says so. It gets no new ones until its agent is updated.
func TestAnOldAgentKeepsItsLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 2})
	c := w.runUp(spec(2, 1))
	w.exec("UPDATE cluster_window SET opened_ms = opened_ms - 60000, confirmed_until_ms = confirmed_until_ms - 60000")
	h := w.hostOf(c, 1)
	q := w.quote(spec(2, 1))
	h.old = true
	w.must(h.sync(w.ctx, 0))

	confirmed := func() (ms int64) {
		w.must(w.d.Pool.QueryRow(w.ctx, "SELECT confirmed_until_ms FROM cluster_window WHERE cluster_id = $1 AND "+
			"closed_ms IS NULL", c.ID).Scan(&ms))
		return ms
	}
	before := confirmed()
	w.rounds(c, "confirmed by the old agent", func(cluster.Cluster) bool {
		w.tick(c)
		return confirmed() > before
	})
	if len(h.desired.Leases) != 1 {
		t.Fatalf("wanted of it: %+v", h.desired.Leases)
	}
	lease := h.desired.Leases[0].LeaseRef
	was := h.until[lease]
	if was == 0 {
		t.Fatalf("no time is authorised: %v", h.until)
	}
	w.exec("UPDATE lease SET run_until = run_until + interval '1 minute' WHERE host_id = $1 AND ended_at IS NULL", h.id)
	w.must(h.sync(w.ctx, 0))
	if h.until[lease] != was+time.Minute.Milliseconds() {
		t.Errorf("run until %d, was %d: not extended", h.until[lease], was)
	}
	if len(h.desired.Leases) != 1 || h.desired.Leases[0].LeaseRef != lease {
		t.Errorf("wanted of it: %+v", h.desired.Leases)
	}

	cannot := func(what string, r cluster.RentRequest, kind fault.Kind) {
		t.Helper()
		if _, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, r, idem.Request{}); !fault.Is(err, kind) {
			t.Errorf("%s: %v", what, err)
		}
	}
	cannot("a new cluster", cluster.RentRequest{Spec: spec(2, 1)}, fault.NoCapacity)
	cannot("a quote of before", cluster.RentRequest{Quote: q.ID}, fault.Conflict)
	hs, err := host.Read(w.ctx, w.d.Q, h.id)
	w.must(err)
	if why := hs.Unsellable(time.Now()); !strings.Contains(why, "too old") || !strings.Contains(why, "updated") {
		t.Errorf("the operator is told: %q", why)
	}
	if _, err := w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID); err != nil {
		t.Fatal(err)
	}
	w.exec("UPDATE gpu_claim SET expires_at = clock_timestamp() WHERE kind = 'quote'")
	if got := w.rounds(c, "ended", func(c cluster.Cluster) bool { return c.State.Ended() }); got.CostSoFar <= 0 {
		t.Errorf("the leases of the old agent cost %s", got.CostSoFar)
	}
	cannot("still", cluster.RentRequest{Spec: spec(2, 1)}, fault.NoCapacity)

	h.old = false
	w.must(h.sync(w.ctx, 0))
	w.runUp(spec(2, 1))
}
