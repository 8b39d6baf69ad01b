package host_test

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// Admins set version floors, and a host that reports the same inventory again is judged by the new ones.
func TestAdminsSetVersionFloors(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	admin, hosts := account.Principal{Org: org, User: user, Admin: true}, host.New(d, nil)
	if _, err := hosts.Floors(t.Context(), account.Principal{Org: org, User: user}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("somebody who is no admin: %v", err)
	}
	before, err := hosts.Floors(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	h := fleettest.Enroll(t, d, org, user, 1).Host
	if _, err := d.Pool.Exec(t.Context(), "UPDATE host_inventory SET hash = 'x' WHERE host_id = $1", h); err != nil {
		t.Fatal(err)
	}
	good := host.NewFloor{Component: "runc", Branch: "1.4.", Least: "1.4.2", Reason: "a bulletin", Noticed: "2026-11-25"}
	for field, change := range map[string]func(*host.NewFloor){
		"component":  func(n *host.NewFloor) { n.Component = "bash" },
		"branch":     func(n *host.NewFloor) { n.Branch = "1.4" },
		"least":      func(n *host.NewFloor) { n.Least = "1.3.9" },
		"reason":     func(n *host.NewFloor) { n.Reason = "" },
		"noticed_on": func(n *host.NewFloor) { n.Noticed = "soon" },
	} {
		bad := good
		change(&bad)
		_, err := hosts.SetFloor(t.Context(), admin, bad)
		if f := fault.From(err); f == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Location != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, least := range []string{"1.4.2", "1.4.3"} { // the second replaces the first
		n := good
		n.Least, n.BlocksFrom = least, &from
		after, err := hosts.SetFloor(t.Context(), admin, n)
		if err != nil || len(after) != len(before)+1 {
			t.Fatalf("%d floors after %d, %v", len(after), len(before), err)
		}
		for _, f := range after {
			if f.Component == "runc" && f.Branch == "1.4." && (f.Least != least || f.BlocksFrom == nil ||
				!f.BlocksFrom.Equal(from) || !strings.Contains(f.Reason, "bulletin") || f.NoticedOn != "2026-11-25") {
				t.Errorf("%+v", f)
			}
		}
	}
	same, err := host.SameInventories(t.Context(), d, []host.Sent{{Host: h, Hash: []byte("x")}})
	if err != nil || same[0] {
		t.Errorf("the inventory of before counts as the same: %v, %v", same, err)
	}
	if _, _, err := hosts.RemoveFloor(t.Context(), admin, "runc", "1.4.", idem.Request{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := hosts.RemoveFloor(t.Context(), admin, "runc", "1.4.", idem.Request{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("removed twice: %v", err)
	}
}
