package volume

import (
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
)

// What a mount reads on demand stays in the store as long as its run, also if the host was silent for longer than a
// session lives and the snapshot was deleted meanwhile. The next agent still finds the snapshot. Afterwards it goes.
func TestWhatIsReadOnDemandStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{Grace: 1})
	vol := w.create("data")
	writing, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	a := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(a.open(agentapi.MountRW))
	p, err := a.snapshot(map[string][]byte{"f": noise(1000)})
	w.Must(err)
	reading, lease, err := w.rent(w.hosts[1], agentapi.MountRO, vol.ID)
	w.Must(err)
	w.Exec("UPDATE volume_mount SET lazy = true WHERE cluster_id = $1", reading)
	r := w.agent(w.hosts[1], lease, vol.ID)
	w.Must(r.open(agentapi.MountRO))
	w.release(writing)
	w.Exec("UPDATE volume_snapshot SET deleted_at = clock_timestamp()")
	w.Exec("UPDATE data_session SET expires_at = clock_timestamp() - interval '1 day'")

	sweep := func() {
		t.Helper()
		for range 2 { // the first dooms, the second deletes
			w.Exec("UPDATE data_pack SET url_until = clock_timestamp() - interval '1 day'")
			_, err := w.v.Collector.Sweep(t.Context())
			w.Must(err)
		}
	}
	read := func() error {
		reply, err := r.send(agentapi.VolumeRequest{Op: agentapi.VolumeRead, Session: r.session,
			Read: &agentapi.ReadPacks{Packs: []int64{p.n}}})
		if err == nil && len(reply.Read.Packs) != 1 {
			t.Errorf("%+v", reply)
		}
		return err
	}
	sweep()
	w.Must(read())
	next := w.agent(w.hosts[1], lease, vol.ID)
	w.Must(next.open(agentapi.MountRO))
	if next.session != r.session || next.base == nil || next.base.ID != r.base.ID {
		t.Errorf("the next agent gets %s with %+v, not %s", next.session, next.base, r.session)
	}

	w.release(reading)
	w.Exec("UPDATE data_session SET expires_at = clock_timestamp() - interval '1 day'")
	sweep()
	w.Must(read()) // the workload may still be stopping
	w.Exec("UPDATE data_session SET expires_at = clock_timestamp() - interval '1 day'")
	w.Exec("UPDATE lease SET gone_at = clock_timestamp() WHERE id = $1", lease)
	sweep()
	var left int64
	w.Must(w.d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM data_pack").Scan(&left))
	if left != 0 {
		t.Errorf("%d packs are left", left)
	}
}

// Why reads wait or fail is shown with the cluster whose reads they are.
func TestReading(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	vol := w.create("data")
	cl, lease, err := w.rent(w.hosts[0], agentapi.MountRO, vol.ID)
	w.Must(err)
	r := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(r.open(agentapi.MountRO))
	for _, problem := range []string{"the store does not answer", ""} {
		_, err = r.send(agentapi.VolumeRequest{Op: agentapi.VolumeReports, Session: r.session,
			Report: &agentapi.VolumeReport{Problem: problem}})
		w.Must(err)
		got, err := w.v.Hosts.Reading(t.Context(), cl)
		w.Must(err)
		if got[vol.ID] != problem {
			t.Errorf("%q, want %q", got, problem)
		}
	}
}
