package volume

import (
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// A pack that was granted, never stored, and given up by a sweep is in no snapshot: a commit that names it is refused.
func TestADoomedPackThatWasNeverStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	vol := w.create("data")
	_, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	a := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(a.open(agentapi.MountRW))
	p, err := a.build(map[string][]byte{"f": noise(1000)})
	w.Must(err)
	snap := id.New[id.Snapshot]()
	_, err = a.grant(snap, p)
	w.Must(err)
	w.Exec("UPDATE data_pack SET state = 'doomed', doomed_at = clock_timestamp() WHERE n = $1", p.n)
	if err := a.commit(snap, p); code(err) != agentapi.VolumeMissing {
		t.Fatalf("a commit of a pack that is not in the store: %v", err)
	}
}
