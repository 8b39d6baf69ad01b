package e2e

import (
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/devstack"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/testfield"
)

// world is the platform as it is in the field, with renters.
type world struct {
	*testfield.Field
	*platform // its database, the demo's image, the renters' address
}

type box = testfield.Box

// newWorld brings up the platform, without hosts.
func newWorld(t *testing.T) *world {
	t.Helper()
	f := testfield.New(t, bin)
	return &world{f, &platform{Info: devstack.Info{PostgresURL: f.PostgresURL, URL: f.URL, DemoImage: f.DemoImage}}}
}

// renter signs up a user who has paid in funds.
func (w *world) renter(t *testing.T, funds money.Nano) *renter {
	t.Helper()
	r := &renter{p: w.platform, http: w.HTTP(t)}
	r.Client, r.token = w.SignUp(t, r.http, t.Name())
	r.topUp(t, funds)
	return r
}

// job is a training over so many nodes that lasts at least so long.
func (w *world) job(nodes int, atLeast time.Duration) client.Spec {
	s := w.training(atLeast)
	s.Nodes = nodes
	return s
}

// idle checks that nothing of any lease is left, in the database or on a machine that is not cut off.
func (w *world) idle(t *testing.T) {
	t.Helper()
	eventually(t, "no GPU is taken", func() bool {
		return w.sql(t,
			"SELECT count(*) FROM gpu_claim WHERE ended_at IS NULL") == 0
	})
	for _, b := range w.Boxes {
		eventually(t, "nothing is left on "+b.Name, func() bool { return len(b.Left()) == 0 })
	}
}

// at is the host of a rank.
func (w *world) at(t *testing.T, c client.Cluster, rank int) *box {
	t.Helper()
	b := w.Boxes[c.Nodes[rank].HostID]
	if b == nil {
		t.Fatalf("rank %d is on no host of this world: %+v", rank, c.Nodes[rank])
	}
	return b
}
