package hostlink_test

import (
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// A host sends its inventory at every connection. One that is unchanged costs one row, and no replica reads the host
// again.
func TestInventory_UnchangedWritesOneRow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.enroll()
	inv := fleettest.Inventory(2)
	send := func(inv agentapi.Inventory) {
		t.Helper()
		var ack agentapi.Ack
		if a.request(agentapi.SubjectInventory(a.Host.String()), inv, &ack); ack.Error != "" {
			t.Fatal(ack.Error)
		}
	}
	type rows struct{ changes, gpus, inventory int }
	written := func() rows {
		return rows{
			s.count("SELECT count(*) FROM fleet_change"),
			s.count("SELECT sum(xmin::text::bigint) FROM gpu"),
			s.count("SELECT sum(xmin::text::bigint) FROM host_inventory"),
		}
	}
	send(inv)
	before, seen := written(), s.count("SELECT count(DISTINCT inventory_at) FROM host WHERE inventory_at IS NOT NULL")
	send(inv)
	if after := written(); after != before || seen != 1 {
		t.Errorf("the same inventory: %+v, then %+v", before, after)
	}
	inv.CPUCores++
	send(inv)
	if n := s.count("SELECT cpu_cores FROM host"); n != inv.CPUCores {
		t.Errorf("a changed inventory: %d cores", n)
	}
	if _, err := s.d.Pool.Exec(t.Context(), "UPDATE gpu SET present = false"); err != nil {
		t.Fatal(err)
	}
	send(inv)
	if n := s.count("SELECT count(*) FROM gpu WHERE present"); n != 2 {
		t.Errorf("an unchanged inventory with all GPUs, of which none was present: %d are", n)
	}
}
