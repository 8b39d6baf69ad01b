// Package meteringtest makes leases in states that tests of other rooms want to look at.
package meteringtest

import (
	"context"
	"crypto/ed25519"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/metering"
)

// FrozenLease is a lease on a host of the operator's, whose host has signed two accounts of its first moments.
func FrozenLease(t testing.TB, d *db.DB, renter, operator id.Org, currency string) id.Lease {
	t.Helper()
	host, lease := id.New[id.Host](), id.New[id.Lease]()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := d.Pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("INSERT INTO host (id, org_id, name, region, state) VALUES ($1, $2, $3, 'eu', 'active')", host, operator, host.String())
	exec("INSERT INTO host_key (host_id, link_key, attest_key) VALUES ($1, $2, $3)", host, host.String(), []byte(public))
	const boot, bootMS = "b-1", 10_000_000
	var anchor *agentapi.Anchor
	err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		if anchor, err = metering.IssueAnchor(ctx, tx, host, boot, bootMS); err != nil {
			return err
		}
		return metering.CreateLeases(ctx, tx, []metering.NewLease{{
			ID: lease, Cluster: id.New[id.Cluster](), Node: id.New[id.Node](), Host: host, Renter: renter, Operator: operator, GPUModel: "H100",
			GPUs: []id.GPU{id.New[id.GPU]()}, CPUs: 1, RAMMB: 1, DiskGB: 1, Currency: currency, HostSharePPM: 850_000, Epoch: 1, Rate: 3_600_000,
			Items: []metering.PriceItem{{Label: "1 × H100", Quantity: 1, Unit: "gpu", UnitRate: 3_600_000, Rate: 3_600_000}},
		}})
	})
	if err != nil {
		t.Fatal(err)
	}
	exec("UPDATE lease SET run_until = created_at + interval '1 hour' WHERE id = $1", lease)
	for _, ms := range []int64{1, 2} {
		s := agentapi.Segment{Lease: lease.String(), Epoch: 1, BootID: boot, Seq: 1, Anchor: anchor.Number, BootEndMS: bootMS + ms,
			StartMS: anchor.ServerMS, EndMS: anchor.ServerMS + ms}
		s.Sign(host.String(), key)
		if _, err := metering.Ingest(t.Context(), d, host, []agentapi.Segment{s}); err != nil {
			t.Fatal(err)
		}
	}
	return lease
}
