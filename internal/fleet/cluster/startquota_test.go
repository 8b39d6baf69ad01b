package cluster_test

import (
	"testing"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// The start quota allows for the largest cluster that ran within 30 days, whatever ran before, ended before it ran, or
// is another organisation's.
func TestTheLargestClusterOfAMonth(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	mine, other := id.New[id.Org](), id.New[id.Org]()
	for _, org := range []id.Org{mine, other} {
		if _, err := d.Pool.Exec(t.Context(), "INSERT INTO org (id, name, personal) VALUES ($1, $2, false)", org,
			org.String()); err != nil {
			t.Fatal(err)
		}
	}
	largest := func(want int32) {
		t.Helper()
		if got, err := d.Q.LargestCluster(t.Context(), mine); err != nil || got != want {
			t.Fatalf("%d GPUs, %v, want %d", got, err, want)
		}
	}
	add := func(org id.Org, gpus int, ran, ended string) {
		t.Helper()
		_, err := d.Pool.Exec(t.Context(), `INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, state,
			node_count, gpus_per_node, rate, currency, running_at, ended_at)
			VALUES ($1, $2, $2, $3, '{}', 'i', 'released', $4, 8, 1, 'USD', clock_timestamp() - $5::text::interval,
			clock_timestamp() - $6::text::interval)`, id.New[id.Cluster](), org, id.New[id.Cluster]().String(), gpus/8,
			none(ran), none(ended))
		if err != nil {
			t.Fatal(err)
		}
	}
	largest(0)
	add(mine, 512, "40 days", "31 days")
	add(mine, 256, "", "1 day")
	add(other, 256, "1 day", "1 hour")
	largest(0)
	add(mine, 8, "2 days", "1 day")
	largest(8)
	add(mine, 64, "40 days", "39 days")
	add(mine, 32, "40 days", "20 days")
	largest(32)
	add(mine, 16, "40 days", "")
	largest(32)
	add(mine, 128, "50 days", "")
	largest(128)
}

func none(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
