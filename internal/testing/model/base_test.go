package model

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// envSeconds says how many rented seconds TestEveryBillIsTheOracles plays.
const envSeconds = "MUSTER_PROOF_SECONDS"

func seconds(t *testing.T, otherwise int64) int64 {
	t.Helper()
	s := os.Getenv(envSeconds)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a number of seconds", envSeconds, s)
	}
	return n
}

func at(ms int64) time.Time { return time.UnixMilli(ms) }

func run(t *testing.T, d *db.DB, sql string, args ...any) {
	t.Helper()
	if _, err := d.Pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func inTx(t *testing.T, d *db.DB, f func(ctx context.Context, tx *db.Tx) error) {
	t.Helper()
	if err := d.InTx(context.Background(), f); err != nil {
		t.Fatal(err)
	}
}

// create writes leases, and the cluster and nodes that they belong to.
func create(ctx context.Context, tx *db.Tx, leases []metering.NewLease) error {
	for _, l := range leases {
		if err := dbtest.InsertCluster(ctx, tx, l.Cluster, l.Renter, l.Currency,
			dbtest.Place{Node: l.Node, Lease: l.ID, Host: l.Host, Rank: l.Rank}); err != nil {
			return err
		}
	}
	return metering.CreateLeases(ctx, tx, leases)
}

// clock is PostgreSQL's, in unix ms.
func clock(t *testing.T, d *db.DB) int64 {
	t.Helper()
	now, err := d.Q.DatabaseTime(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return now.UnixMilli()
}

func newOrg(t *testing.T, d *db.DB) id.Org {
	t.Helper()
	org := id.New[id.Org]()
	run(t, d, "INSERT INTO org (id, name, personal) VALUES ($1, 'o', true)", org)
	return org
}

func mustBalance(t *testing.T, d *db.DB) {
	t.Helper()
	b, err := ledger.Check(context.Background(), d)
	if err != nil || !b.Balanced() || b.Debits.Cmp(b.Credits) != 0 {
		t.Fatalf("books: %v %v, debits %v credits %v", b.Problems, err, b.Debits, b.Credits)
	}
}
