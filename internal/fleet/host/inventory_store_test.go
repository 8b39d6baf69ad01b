package host_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// The same random inventories, stored in sets and one by one, leave the same rows.
func TestInventorySets_StoreWhatSingleOnesDo(t *testing.T) {
	t.Parallel()
	const hosts, rounds = 12, 12
	url := dbtest.NewURL(t)
	sets := open(t, url)
	org, user := fleettest.Org(t, sets)
	rival, rivalUser := fleettest.Org(t, sets)
	invs := make([]host.Listed, hosts)
	for i := range invs {
		o, u := org, user
		if i%4 == 3 {
			o, u = rival, rivalUser
		}
		invs[i] = host.Listed{Host: fleettest.Enroll(t, sets, o, u, 1).Host, Inventory: fleettest.Inventory(1 + i%4)}
	}
	for _, ephemeral := range []int{1, 3, 5} {
		exec(t, sets, "UPDATE host SET ephemeral = true WHERE id = $1", invs[ephemeral].Host)
	}
	exec(t, sets, "UPDATE host SET state = 'retired' WHERE id = $1", invs[hosts-1].Host)
	sets.Close()
	singles := open(t, dbtest.Copy(t, url))
	sets = open(t, url)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	together, alone := 0, 0
	for round := range rounds {
		var sent []host.Listed
		for _, i := range r.Perm(hosts)[:2+r.IntN(hosts-1)] {
			invs[i].Inventory = changed(r, invs[i].Inventory, invs[r.IntN(hosts)].Inventory)
			sent = append(sent, listed(t, invs[i]))
		}
		if again := sent[0]; r.IntN(3) == 0 { // two inventories of one host
			again.Inventory = changed(r, again.Inventory, sent[1].Inventory)
			sent = append(sent, listed(t, again))
		}
		out := recordAll(t, sets, sent)
		var first, later []host.Listed
		want := map[bool]string{}
		for i, o := range out {
			if o.Alone {
				later = append(later, sent[i])
				alone++
				continue
			}
			first = append(first, sent[i])
			want[true] += fmt.Sprintln(o.Refused)
			together++
		}
		for _, l := range later {
			want[true] += fmt.Sprintln(recordOne(t, sets, l))
		}
		for _, l := range append(first, later...) {
			want[false] += fmt.Sprintln(recordOne(t, singles, l))
		}
		if diff := cmp.Diff(want[false], want[true]); diff != "" {
			t.Fatalf("seed %d, round %d: refusals, one by one (-) and in sets (+):\n%s", seed, round, diff)
		}
		if diff := cmp.Diff(stored(t, singles), stored(t, sets)); diff != "" {
			t.Fatalf("seed %d, round %d: one by one (-) and in sets (+):\n%s", seed, round, diff)
		}
	}
	if together == 0 || alone == 0 {
		t.Errorf("seed %d: %d inventories were stored in sets, and %d alone", seed, together, alone)
	}
}

func open(t *testing.T, url string) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), db.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func listed(t *testing.T, l host.Listed) host.Listed {
	t.Helper()
	hash, err := host.HashInventory(l.Inventory)
	if err != nil {
		t.Fatal(err)
	}
	l.Hash = hash
	return l
}

// recordAll stores inventories in one transaction.
func recordAll(t *testing.T, d *db.DB, all []host.Listed) (out []host.Recorded) {
	t.Helper()
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		out, err = host.RecordInventories(ctx, tx, all)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func recordOne(t *testing.T, d *db.DB, l host.Listed) error {
	t.Helper()
	return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return fleettest.RecordInventory(ctx, tx, l.Host, l.Inventory)
	})
}

// changed returns an inventory with random changes; most often few or none. other is another host's.
func changed(r *rand.Rand, inv, other agentapi.Inventory) agentapi.Inventory {
	inv.GPUs = slices.Clone(inv.GPUs)
	for n := r.IntN(4); n > 0; n-- {
		var g *agentapi.GPU
		if len(inv.GPUs) > 0 {
			g = &inv.GPUs[r.IntN(len(inv.GPUs))]
		}
		switch pick := r.IntN(24); {
		case pick < 4:
			inv.RAMMB = 1000 + r.Int64N(1000)
		case pick < 6:
			inv.Runtimes = [][]string{nil, {"runc"}, {"runsc", "runc"}, {"other"}}[r.IntN(4)]
		case pick < 8:
			inv.MultiNode = !inv.MultiNode
		case pick < 11:
			inv.Images = nil
			for range r.IntN(4) {
				inv.Images = append(inv.Images, agentapi.CachedImage{Ref: fmt.Sprintf("i:%d", r.IntN(5)),
					Digest: fmt.Sprintf("sha256:%d", r.IntN(3))})
			}
		case pick < 12:
			inv.CPUCores = r.IntN(20) // 0 is refused
		case pick < 14:
			inv.GPUs = append(inv.GPUs, fleettest.Inventory(1).GPUs...)
		case g == nil:
		case pick < 17:
			g.PowerLimitMW = agentapi.Known(100_000 * r.Int64N(5))
		case pick < 19:
			g.VRAMMB = 1000 + r.Int64N(10)
		case pick < 21:
			inv.GPUs = slices.Delete(inv.GPUs, 0, 1)
		case pick < 22:
			g.Health, g.HealthReason = []string{host.Healthy, host.Suspect, "unknown"}[r.IntN(3)], "because"
		case pick < 23 && len(other.GPUs) > 0:
			g.UUID = other.GPUs[0].UUID
		}
	}
	return inv
}

// stored returns every row that inventories change, without ids of GPUs and times.
func stored(t *testing.T, d *db.DB) (out []string) {
	t.Helper()
	for _, sql := range []string{
		"SELECT (to_jsonb(h) - 'inventory_at')::text FROM host h ORDER BY id",
		"SELECT to_jsonb(i)::text FROM host_inventory i ORDER BY host_id",
		"SELECT to_jsonb(i)::text FROM host_image i ORDER BY host_id, ref",
		`SELECT (to_jsonb(g) - 'id' - 'parent_id' - 'created_at' - 'removed_at')::text || (removed_at IS NULL) AS v
			FROM gpu g ORDER BY host_id, uuid, v`,
		"SELECT (to_jsonb(n) - 'id' - 'created_at')::text AS v FROM notice n ORDER BY v",
		"SELECT (to_jsonb(a) - 'id' - 'created_at')::text AS v FROM audit_event a ORDER BY v",
		"SELECT DISTINCT host_id::text FROM fleet_change ORDER BY host_id::text",
	} {
		out = append(out, rowsOf(t, d, sql)...)
	}
	return out
}

// rowsOf returns the rows of a query of one text.
func rowsOf(t *testing.T, d *db.DB, sql string) []string {
	t.Helper()
	rows, err := d.Pool.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return out
}
