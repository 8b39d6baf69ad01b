package host_test

import (
	"context"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// A cloud gives the GPU of a deleted virtual machine to the next one, of the same customer or of another. The new host
// gets the GPU when the old one is gone, and not earlier.
func TestAGPUMovesToTheHostThatListsItWhenTheOldHostIsGone(t *testing.T) {
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
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := d.Pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	inventory := func(uuid string) agentapi.Inventory {
		inv := fleettest.Inventory(1)
		inv.GPUs[0].UUID = uuid
		return inv
	}
	list := func(o operator, uuid string) (host.Host, error) {
		t.Helper()
		return enroll(t, d, fleettest.Policy, fleettest.NewAgent(t).Request(t, fleettest.Origin,
			fleettest.Token(t, d, o.org, o.user, ""), inventory(uuid)))
	}
	silent := func(h host.Host, since string) {
		t.Helper()
		exec("UPDATE host_status SET last_sync_at = clock_timestamp() - $2::interval WHERE host_id = $1", h.ID, since)
	}
	// owner is the host that has a GPU without a contest; the zero ID: none has.
	owner := func(uuid string) (h id.Host) {
		t.Helper()
		err := d.Pool.QueryRow(t.Context(), "SELECT host_id FROM gpu WHERE uuid = $1 AND removed_at IS NULL AND "+
			"present AND contest = ''", uuid).Scan(&h)
		if err != nil && !db.NoRows(err) {
			t.Fatal(err)
		}
		return h
	}
	count := func(sql string, org id.Org) (n int) {
		t.Helper()
		if err := d.Pool.QueryRow(t.Context(), sql, org).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const notices = "SELECT count(*) FROM notice WHERE org_id = $1 AND dedupe_key LIKE 'gpu.moved:%'"
	const acts = "SELECT count(*) FROM audit_event WHERE org_id = $1 AND action = 'gpu.moved'"

	billed := func(h host.Host) {
		_, lease := fleettest.Lease(t, d, h.ID, open().org)
		exec("UPDATE lease SET gpu_ids = array(SELECT g.id FROM gpu g WHERE g.host_id = lease.host_id) WHERE id = $1", lease)
		exec("INSERT INTO lease_meter (lease_id, billed_ms) VALUES ($1, 1)", lease)
	}
	claimed := func(h host.Host) {
		t.Helper()
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return fleettest.Claim(ctx, tx, host.ForMaintenance, h.ID.UUID(), fleettest.GPUs(t, d, h.ID), nil)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		since  string
		before func(h host.Host)
		own    bool // moves within an organisation
		others bool // moves to another one
	}{
		"reports":              {since: "4 minutes"},
		"silent for a while":   {since: "6 minutes", own: true},
		"silent for a weekend": {since: "23 hours", own: true},
		"gone":                 {since: "25 hours", own: true, others: true},
		"gone, claimed":        {since: "60 days", before: claimed},
		"proven":               {since: "29 days", before: billed, own: true},
		"proven, gone":         {since: "31 days", before: billed, own: true, others: true},
		"awarded": {since: "60 days", own: true, before: func(h host.Host) {
			exec("INSERT INTO gpu_award (uuid, org_id, why) SELECT g.uuid, h.org_id, 'photographs' FROM gpu g JOIN host h "+
				"ON h.id = g.host_id WHERE h.id = $1", h.ID)
		}},
		"reports without it": {since: "0 seconds", own: true, before: func(h host.Host) {
			exec("UPDATE gpu SET present = false WHERE host_id = $1", h.ID)
		}},
		"the platform was away": {since: "60 days", before: func(host.Host) {
			exec("INSERT INTO replica (id, name) VALUES (gen_random_uuid(), 'new')")
		}},
	} {
		for kind, want := range map[string]bool{"own": c.own, "others": c.others} {
			uuid := "GPU-" + kind + "-" + name
			first := open()
			second := first
			if kind == "others" {
				second = open()
			}
			old, err := list(first, uuid)
			if err != nil {
				t.Fatal(err)
			}
			if c.before != nil {
				c.before(old)
			}
			silent(old, c.since)
			h, err := list(second, uuid)
			exec("DELETE FROM replica")
			if kind == "own" && !want {
				if reason(err) != "gpu_active" {
					t.Errorf("%s, %s: %v", name, kind, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s, %s: %v", name, kind, err)
				continue
			}
			if got := owner(uuid) == h.ID; got != want {
				t.Errorf("%s, %s: moved %t, want %t", name, kind, got, want)
			}
			wantNotices := 0
			if want && kind == "others" {
				wantNotices = 1
			}
			if n := count(notices, first.org); n != wantNotices {
				t.Errorf("%s, %s: %d notices, want %d", name, kind, n, wantNotices)
			}
			if n := count(acts, first.org); (n == 1) != want {
				t.Errorf("%s, %s: %d acts, moved %t", name, kind, n, want)
			}
		}
	}

	// A contest ends by itself when the old host stays away: the new host's next inventory is stored, though nothing of
	// it has changed.
	first, second := open(), open()
	old, err := list(first, "GPU-later")
	if err != nil {
		t.Fatal(err)
	}
	h, err := list(second, "GPU-later")
	if err != nil {
		t.Fatal(err)
	}
	resend := func() {
		t.Helper()
		hash, err := host.HashInventory(inventory("GPU-later"))
		if err != nil {
			t.Fatal(err)
		}
		same, err := host.SameInventories(t.Context(), d, []host.Sent{{Host: h.ID, Hash: hash}})
		if err != nil {
			t.Fatal(err)
		}
		if !same[0] {
			err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				return fleettest.RecordInventory(ctx, tx, h.ID, inventory("GPU-later"))
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	resend()
	if got := owner("GPU-later"); !got.IsZero() {
		t.Fatalf("%s has a contested GPU", got)
	}
	silent(old, "25 hours")
	resend()
	if got := owner("GPU-later"); got != h.ID {
		t.Errorf("%s has the GPU after the old host is gone, want %s", got, h.ID)
	}
}
