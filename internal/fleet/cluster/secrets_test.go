package cluster_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/idem"
)

// What opens a renter's registry reaches the hosts that pull, and is nowhere else to be read: not in any row of any
// table, not in an answer of the API, not in the timeline; after the end it is not even kept sealed.
func TestRegistryCredentialsAreReadByHostsOnly(t *testing.T) {
	t.Parallel()
	const password = "hunter3-of-the-registry"
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	s := spec(2, 1)
	s.RegistryAuth = &market.RegistryAuth{Username: "robot", Password: password}
	q := w.quote(s) // quotes keep secrets too
	once := idem.Request{Principal: "p", Method: "POST", Path: "/clusters", Key: "k", BodyHMAC: []byte("b")}
	c, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Quote: q.ID}, once)
	w.must(err)
	c = w.rounds(c, "running", in(lifecycle.Running))
	for rank := range 2 {
		if a := w.hostOf(c, rank).desired.Leases[0].RegistryAuth; a == nil || a.Password != password ||
			a.Username != "robot" {
			t.Errorf("rank %d is told %+v", rank, a)
		}
	}
	w.nowhere(password)
	events, err := w.clusters[0].Views.Events(w.ctx, w.renter.Org, c.ID, 0, 100)
	w.must(err)
	for _, v := range []any{w.get(c), events} {
		b, err := json.Marshal(v)
		w.must(err)
		if strings.Contains(string(b), password) {
			t.Errorf("shown: %s", b)
		}
	}
	_, err = w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)
	w.must(err)
	var kept int
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT count(*) FROM cluster WHERE id = $1 AND secrets IS NOT NULL",
		c.ID).Scan(&kept))
	if kept != 0 {
		t.Error("kept, sealed, after the end")
	}
	w.clean(w.rounds(c, "released", in(lifecycle.Released)))
	w.nowhere(password)
}

// nowhere looks for a secret in every row of every table, as text and as bytes.
func (w *world) nowhere(secret string) {
	w.t.Helper()
	rows, err := w.d.Pool.Query(w.ctx, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' "+
		"AND table_type = 'BASE TABLE'")
	w.must(err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.must(err)
	if len(tables) < 20 {
		w.t.Fatalf("only %d tables were looked at", len(tables))
	}
	for _, table := range tables {
		var n int
		name := pgx.Identifier{table}.Sanitize()
		w.must(w.d.Pool.QueryRow(w.ctx, `SELECT count(*) FROM `+name+` AS r
			WHERE r::text LIKE '%' || $1 || '%' OR r::text LIKE '%' || encode(convert_to($1, 'UTF8'), 'hex') || '%'
			   OR r::text LIKE '%' || encode(convert_to($1, 'UTF8'), 'base64') || '%'`, secret).Scan(&n))
		if n > 0 {
			w.t.Errorf("%d rows of %s hold a secret that can be read", n, table)
		}
	}
}
