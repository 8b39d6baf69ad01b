package cluster_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The state that comes with a wake is the one in the reply to a report, with the renter's secrets. An agent that does
// not apply it there gets none.
func TestWakeState_IsThatOfAReply(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	s := spec(1, 1)
	s.Env = map[string]string{"TOKEN": "a secret"}
	w.rent(s)
	h := w.hosts[0].id
	if d, err := w.clusters[0].Hosts.WakeState(w.ctx, h); d != nil || err != nil {
		t.Fatalf("to an agent of an earlier version: %+v, %v", d, err)
	}
	w.exec(`INSERT INTO host_agent (host_id, capabilities) VALUES ($1, '{wake_state}')
		ON CONFLICT (host_id) DO UPDATE SET capabilities = excluded.capabilities`, h)
	w.exec(`INSERT INTO gpu_requalify (gpu_id, host_id, number) SELECT id, host_id, 3 FROM gpu WHERE host_id = $1`, h)
	got, err := w.clusters[0].Hosts.WakeState(w.ctx, h)
	want := w.desired(w.clusters[0], h)
	if diff := cmp.Diff(&want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if len(want.Leases) != 1 || want.Leases[0].Env["TOKEN"] != "a secret" {
		t.Errorf("%+v", want.Leases)
	}
	if len(want.Requalify) != 1 || want.Requalify[0].Number != 3 || want.Requalify[0].GPU != want.Leases[0].GPUs[0] {
		t.Errorf("requests for GPUs: %+v", want.Requalify)
	}
}
