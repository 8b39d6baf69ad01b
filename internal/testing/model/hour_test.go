package model

import (
	"context"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/money"
)

// newHour is a rental whose money the platform itself holds: it authorises an hour, or as much of it as the wallet pays
// for, and the hour is then moved into the past. What is held must be what the oracle says that time can cost, with
// less than a nano-unit of each lease to spare.
func newHour(t *testing.T, d *db.DB, r *rand.Rand, hosts []*machine) *rental {
	t.Helper()
	const hour = int64(3_600_000)
	now := clock(t, d)
	c := newLeases(t, d, r, hosts, [2]int64{now, now + hour})
	least, most := new(big.Int), new(big.Int) // a minute and the whole hour, at the highest prices
	for _, l := range c.leases {
		var rate int64
		for _, p := range l.facts.prices {
			rate = max(rate, p[1])
		}
		dear := facts{life: [2]int64{0, hour}, prices: [][2]int64{{0, rate}}}
		most.Add(most, dear.within(dear.life).judge().renter)
		dear.life[1] = 61_000
		least.Add(least, dear.within(dear.life).judge().renter)
	}
	c.funds = money.Nano(least.Int64()+r.Int64N(most.Int64()+1)) + money.Nano(len(c.leases))
	var a metering.Authorisation
	inTx(t, d, func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{
			Kind: "topup",
			Key:  "topup:" + c.cluster.String(),
			Transfers: []ledger.Transfer{
				{Debit: ledger.StripeClearing(eur), Credit: ledger.Wallet(c.renter, eur), Amount: c.funds}},
		})
		if err == nil {
			a, err = metering.Authorise(ctx, tx, metering.AuthoriseRequest{Cluster: c.cluster, Org: c.renter, Currency: eur})
		}
		return err
	})
	if err := d.Pool.QueryRow(context.Background(), "SELECT max(covered_from_ms) FROM lease WHERE cluster_id = $1",
		c.cluster).Scan(&c.life[0]); err != nil {
		t.Fatal(err)
	}
	c.life[1] = a.RunUntil.UnixMilli()
	need := new(big.Int)
	for _, l := range c.leases {
		l.facts.life = c.life
		need.Add(need, l.facts.within(c.life).judge().renter)
	}
	if spare := new(big.Int).Sub(big.NewInt(int64(a.Held)), need); spare.Sign() < 0 ||
		spare.Cmp(big.NewInt(int64(len(c.leases)))) > 0 {
		t.Fatalf("cluster %s: %s is held for %d ms that may cost %s nano-units", c.cluster, a.Held, c.life[1]-c.life[0], need)
	}
	c.age(t, d, c.life[1]-clock(t, d)+60_000)
	c.replace(t, d, r)
	c.draw(r)
	return c
}

// age moves the cluster's life and prices into the past.
func (c *rental) age(t *testing.T, d *db.DB, ms int64) {
	t.Helper()
	c.life[0], c.life[1] = c.life[0]-ms, c.life[1]-ms
	run(t, d, `UPDATE lease SET created_at = to_timestamp($2::bigint / 1000.0), run_until = to_timestamp($3::bigint /
		1000.0), covered_from_ms = $2
		WHERE cluster_id = $1`, c.cluster, c.life[0], c.life[1])
	for _, l := range c.leases {
		l.facts.life = c.life
		for i := range l.facts.prices[1:] {
			l.facts.prices[i+1][0] -= ms
		}
		run(t, d, "UPDATE lease_price SET from_ms = from_ms - $2 WHERE lease_id = $1 AND from_ms > 0", l.id, ms)
	}
}
