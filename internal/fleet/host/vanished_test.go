package host_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// vm enrols a host whose machine may vanish.
func vm(t *testing.T, d *db.DB, org id.Org, user id.User, inv agentapi.Inventory) host.Host {
	t.Helper()
	r := fleettest.NewAgent(t).Request(t, fleettest.Origin, fleettest.Token(t, d, org, user, ""), inv)
	r.Ephemeral = true
	h, err := enroll(t, d, fleettest.Policy, r)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A host whose machine may vanish is retired when it has been silent for a day and has no claim. Others are not, and
// none is before the servers had time to receive a report of it.
func TestASilentEphemeralHostIsRetired(t *testing.T) {
	t.Parallel()
	const silent = "UPDATE host_status SET last_sync_at = now() - interval '%s' WHERE host_id = $1"
	const enrolled = "UPDATE host SET created_at = now() - interval '%s', ephemeral = %t WHERE id = $1"
	for name, c := range map[string]struct {
		change  string // SQL, of the host $1
		claimed bool
		retired bool
	}{
		"silent":                {change: fmt.Sprintf(silent, "25 hours"), retired: true},
		"silent for less":       {change: fmt.Sprintf(silent, "23 hours")},
		"never came":            {change: fmt.Sprintf(enrolled, "25 hours", true), retired: true},
		"just enrolled":         {change: fmt.Sprintf(enrolled, "1 hour", true)},
		"silent, with a lease":  {change: fmt.Sprintf(silent, "9 days"), claimed: true},
		"silent, not ephemeral": {change: fmt.Sprintf(enrolled, "9 days", false)},
		"the platform was away": {change: "WITH r AS (INSERT INTO replica (id, name) VALUES (gen_random_uuid(), 'new')) " +
			fmt.Sprintf(silent, "9 days")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := dbtest.New(t)
			org, user := fleettest.Org(t, d)
			h := vm(t, d, org, user, fleettest.Inventory(2))
			if !h.Ephemeral {
				t.Fatal("the host is not ephemeral")
			}
			if _, err := d.Pool.Exec(t.Context(), c.change, h.ID); err != nil {
				t.Fatal(err)
			}
			if c.claimed {
				err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
					return fleettest.Claim(ctx, tx, host.ForMaintenance, h.ID.UUID(), fleettest.GPUs(t, d, h.ID), nil)
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			want := 0
			if c.retired {
				want = 1
			}
			for _, n := range []int{want, 0} { // a second time there is nothing to do
				if got, err := host.New(d, nil).RetireVanished(t.Context()); err != nil || got != n {
					t.Errorf("retired %d, %v; want %d", got, err, n)
				}
			}
			got, err := host.New(d, nil).Get(t.Context(), account.Principal{Org: org}, h.ID)
			if err != nil || (got.State == host.Retired) != c.retired {
				t.Errorf("the host is %s, %v", got.State, err)
			}
			var gpus, keys, acts, notices int
			if err := d.Pool.QueryRow(t.Context(), `SELECT
				(SELECT count(*) FROM gpu WHERE host_id = $1 AND removed_at IS NOT NULL),
				(SELECT count(*) FROM host_key WHERE host_id = $1 AND revoked_at IS NOT NULL),
				(SELECT count(*) FROM audit_event WHERE org_id = $2 AND action = 'host.vanish'),
				(SELECT count(*) FROM notice WHERE org_id = $2 AND dedupe_key LIKE 'host.vanish:%')`, h.ID, org).
				Scan(&gpus, &keys, &acts, &notices); err != nil || gpus != 2*want || keys != want || acts != want ||
				notices != want {
				t.Errorf("%d GPUs removed, %d keys revoked, %d acts, %d notices, %v", gpus, keys, acts, notices, err)
			}
		})
	}
}

// A virtual machine that was stopped and started has other GPUs. The earlier ones leave an ephemeral host as soon as no
// claim holds them; other hosts keep them as missing.
func TestAnEphemeralHostsFormerGPUsAreRemoved(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	for _, ephemeral := range []bool{true, false} {
		h := vm(t, d, org, user, fleettest.Inventory(2))
		if _, err := d.Pool.Exec(t.Context(), "UPDATE host SET ephemeral = $2 WHERE id = $1", h.ID, ephemeral); err != nil {
			t.Fatal(err)
		}
		lease := id.New[id.Lease]().UUID()
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return fleettest.Claim(ctx, tx, host.ForMaintenance, lease, fleettest.GPUs(t, d, h.ID)[:1], nil)
		}); err != nil {
			t.Fatal(err)
		}
		other := fleettest.Inventory(2)
		expect := func(when string, want int) {
			t.Helper()
			if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				return fleettest.RecordInventory(ctx, tx, h.ID, other)
			}); err != nil {
				t.Fatal(err)
			}
			if !ephemeral {
				want = 4
			}
			got, err := host.New(d, nil).Get(t.Context(), account.Principal{Org: org}, h.ID)
			if err != nil || len(got.GPUs) != want {
				t.Errorf("ephemeral %t, %s: %d GPUs, want %d; %v", ephemeral, when, len(got.GPUs), want, err)
			}
		}
		expect("with a claim on one", 3)
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return host.EndClaims(ctx, tx, lease, "done")
		}); err != nil {
			t.Fatal(err)
		}
		expect("without claims", 2)
	}
}
