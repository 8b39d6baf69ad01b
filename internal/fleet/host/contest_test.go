package host_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// A host that lists an honest host's GPUs first does not keep it out. A host that lists them later does not take it off
// the market if a renter has used it: staff decide, and leases that run go on.
func TestAGPUThatTwoOperatorsListIsContested(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	type operator struct {
		org  id.Org
		user id.User
	}
	open := func() (o operator) {
		o.org, o.user = fleettest.Org(t, d)
		return o
	}
	list := func(o operator, uuid string) host.Host {
		t.Helper()
		inv := fleettest.Inventory(1)
		inv.GPUs[0].UUID = uuid
		h, err := enroll(t, d, fleettest.Policy, fleettest.NewAgent(t).Request(t, fleettest.Origin,
			fleettest.Token(t, d, o.org, o.user, ""), inv))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	stands := func(want ...host.Contest) {
		t.Helper()
		got, err := host.ContestedGPUs(t.Context(), d.Q, 100)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%+v, %v; want %q", got, err, want)
		}
		for i := range want {
			if got[i].Contest != want[i] {
				t.Errorf("GPU %d of %s is %q, want %q", i, got[i].HostName, got[i].Contest, want[i])
			}
		}
	}
	// rentable is whether the host's GPU can be claimed for a lease; operators claim it for themselves in any case.
	undo := errors.New("undo")
	rentable := func(h host.Host, want bool) {
		t.Helper()
		for kind, want := range map[host.ClaimKind]bool{host.ForLease: want, host.ForQuote: want, host.ForMaintenance: true} {
			err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				if err := fleettest.Claim(ctx, tx, kind, h.ID.UUID(), fleettest.GPUs(t, d, h.ID), nil); err != nil {
					return err
				}
				return undo
			})
			if got := errors.Is(err, undo); got != want {
				t.Errorf("claim of %s for %s: %v, want %t", h.Name, kind, err, want)
			}
		}
		rows, err := d.Q.FleetGPUs(t.Context(), []pgtype.UUID{{Bytes: h.ID.UUID(), Valid: true}})
		if err != nil || len(rows) != 1 || rows[0].Free != want {
			t.Errorf("the market sees %+v of %s, %v", rows, h.Name, err)
		}
	}
	notices := func(o operator, want int) {
		t.Helper()
		var n int
		err := d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM notice WHERE org_id = $1 AND dedupe_key LIKE 'gpu.%'",
			o.org).Scan(&n)
		if err != nil || n != want {
			t.Errorf("%d notices of contests: %v, want %d", n, err, want)
		}
	}

	// A squatter was first: neither is rented until staff decide.
	squatter, honest := open(), open()
	theirs := list(squatter, "GPU-1")
	stands()
	rentable(theirs, true)
	mine := list(honest, "GPU-1")
	stands(host.Holder, host.Challenger)
	rentable(theirs, false)
	rentable(mine, false)
	notices(squatter, 1)
	notices(honest, 1)
	if err := host.AwardGPU(t.Context(), d, "GPU-1", mine.ID, ""); err == nil {
		t.Error("decided without a reason")
	}
	if err := host.AwardGPU(t.Context(), d, "GPU-2", mine.ID, "photographs"); err == nil {
		t.Error("a GPU that the host does not list was given to it")
	}
	if err := host.AwardGPU(t.Context(), d, "GPU-1", mine.ID, "photographs"); err != nil {
		t.Fatal(err)
	}
	stands(host.Challenger, host.Incumbent)
	rentable(theirs, false)
	rentable(mine, true)
	notices(honest, 2)
	notices(squatter, 2)
	// A second decision on the same day is notified, too.
	for _, to := range []host.Host{theirs, mine} {
		if err := host.AwardGPU(t.Context(), d, "GPU-1", to.ID, "an invoice"); err != nil {
			t.Fatal(err)
		}
	}
	notices(honest, 4)
	notices(squatter, 4)
	// The decision outlives the host: enrolled again, it stands against the squatter, and against the next one.
	retire := func(h host.Host) {
		t.Helper()
		if _, err := d.Pool.Exec(t.Context(), "UPDATE gpu SET present = false, removed_at = clock_timestamp() WHERE "+
			"host_id = $1", h.ID); err != nil {
			t.Fatal(err)
		}
		if err := d.Q.EndContests(t.Context(), h.ID); err != nil {
			t.Fatal(err)
		}
	}
	retire(mine)
	stands(host.Challenger)
	mine = list(honest, "GPU-1")
	list(open(), "GPU-1")
	stands(host.Challenger, host.Incumbent, host.Challenger)
	rentable(mine, true)
	notices(honest, 4) // of the contest, one a day

	// A host that another organisation rented and was billed for goes on selling; one that its owner rented does not.
	for name, c := range map[string]struct {
		renter operator
		billed int
		want   host.Contest
	}{
		"GPU-10": {open(), 1, host.Incumbent},
		"GPU-11": {open(), 0, host.Holder},
		"GPU-12": {squatter, 1, host.Holder},
	} {
		owner := honest
		if c.renter == squatter {
			owner = squatter
		}
		h := list(owner, name)
		_, lease := fleettest.Lease(t, d, h.ID, c.renter.org)
		for _, sql := range []string{
			`UPDATE lease SET gpu_ids = array(SELECT g.id FROM gpu g WHERE g.host_id = lease.host_id)
				WHERE id = $1 AND $2::bigint >= 0`,
			`INSERT INTO lease_meter (lease_id, billed_ms) SELECT $1, $2`,
		} {
			if _, err := d.Pool.Exec(t.Context(), sql, lease, c.billed); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
		list(open(), name)
		rentable(h, c.want == host.Incumbent)
		var got host.Contest
		if err := d.Pool.QueryRow(t.Context(), "SELECT contest FROM gpu WHERE host_id = $1", h.ID).Scan(&got); err != nil ||
			got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}
