package host_test

import (
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// What an operator does with a host stays on the trail, with who did it and from where; what changes nothing, and what
// is refused, does not.
func TestWhatAnOperatorDoesWithAHostLeavesATrail(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	h := fleettest.Enroll(t, d, org, user, 1).Host
	who := account.Principal{Org: org, User: user, Token: id.New[id.Token](), Address: "192.0.2.7"}
	act := func(by account.Principal, action string) error {
		_, _, err := host.New(d, nil).Act(t.Context(), by, h, host.Action{Name: action}, idem.Request{})
		return err
	}
	if _, err := d.Pool.Exec(t.Context(), "UPDATE host SET state = 'active' WHERE id = $1", h); err != nil {
		t.Fatal(err)
	}
	if err := act(account.Principal{Org: id.New[id.Org]()}, host.Drain); !fault.Is(err, fault.NotFound) {
		t.Errorf("a stranger: %v", err)
	}
	for _, f := range []string{
		host.Drain, host.Drain, host.Resume, host.Resume, host.Retire, host.Retire,
	} {
		if err := act(who, f); err != nil {
			t.Fatal(err)
		}
	}
	trail, err := audit.List(t.Context(), d.Q, org, id.Audit{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"host.retire", "host.resume", "host.drain", "host.enroll"} // newest first
	if len(trail) != len(want) {
		t.Fatalf("%d entries: %+v", len(trail), trail)
	}
	for i, e := range trail[:3] {
		if e.Action != want[i] || e.Object != h.String() || e.User != user || e.Token != who.Token ||
			e.Address != who.Address {
			t.Errorf("entry %d: %+v, want %s", i, e, want[i])
		}
	}
}
