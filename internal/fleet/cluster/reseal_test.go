package cluster_test

import (
	"bytes"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/seal"
)

// While the platform's secret changes everything opens with either; after the job the previous one opens nothing and is
// not needed.
func TestTheSecretRotates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	old, fresh := bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{8}, 32)
	onOld, err := seal.NewBox(old)
	w.must(err)
	rotating, err := seal.NewRotatingBox(fresh, old)
	w.must(err)
	onNew, err := seal.NewBox(fresh)
	w.must(err)
	with := func(b *seal.Box) *cluster.Clusters {
		return cluster.New(w.d, w.market, nil, cluster.Config{Currency: usd, Box: b})
	}
	s := spec(1, 1)
	s.RegistryAuth = &market.RegistryAuth{Username: "robot", Password: "hunter3"}
	q := w.quote(s)
	c, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Quote: q.ID}, idem.Request{})
	w.must(err)
	before, err := with(onOld).Ingress.SSHHostKeys(w.ctx)
	w.must(err)
	desired := func(on *cluster.Clusters) (d agentapi.Desired, err error) {
		s, err := on.Hosts.HostState(w.ctx, w.hostOf(c, 0).id, agentapi.Sync{})
		if err != nil {
			return d, err
		}
		return *s.Desired, nil
	}
	opens := func(what string, on *cluster.Clusters, want bool) {
		t.Helper()
		d, err := desired(on)
		if got := err == nil && len(d.Leases) == 1 && d.Leases[0].RegistryAuth != nil &&
			d.Leases[0].RegistryAuth.Password == "hunter3"; got != want {
			t.Fatalf("%s: opens %v, want %v (%v)", what, got, want, err)
		}
	}
	opens("the new secret alone, before", with(onNew), false)
	both := with(rotating)
	opens("both, before", both, true)
	admin := account.Principal{Admin: true}
	if st, err := both.Secrets.State(w.ctx, admin); err != nil || !st.Rotating || st.Done || st.PassedAt != nil {
		t.Fatalf("%+v %v", st, err)
	}
	for i, want := range []int{1, 0} {
		if n, err := both.Secrets.Reseal(w.ctx); err != nil || n != want {
			t.Fatalf("pass %d: %d %v", i, n, err)
		}
	}
	opens("both, after", both, true)
	opens("the new secret alone, after", with(onNew), true)
	opens("the old secret, after", with(onOld), false)
	st, err := both.Secrets.State(w.ctx, admin)
	if err != nil || st.Resealed != 1 || st.Remaining != 0 || st.Done {
		t.Fatalf("%+v %v", st, err)
	}
	_, err = w.d.Pool.Exec(w.ctx, "UPDATE seal_progress SET began_at = began_at - interval '26 hours'")
	w.must(err)
	_, err = both.Secrets.Reseal(w.ctx)
	w.must(err)
	if st, err = both.Secrets.State(w.ctx, admin); err != nil || !st.Done {
		t.Fatalf("%+v %v", st, err)
	}
	for _, b := range []*seal.Box{rotating, onNew} {
		after, err := with(b).Ingress.SSHHostKeys(w.ctx)
		w.must(err)
		if len(after) != len(before) || !bytes.Equal(after[0].PublicKey().Marshal(), before[0].PublicKey().Marshal()) {
			t.Fatal("other SSH host keys")
		}
	}
	if _, err := with(onOld).Ingress.SSHHostKeys(w.ctx); err == nil {
		t.Error("the old secret opens SSH host keys")
	}
}
