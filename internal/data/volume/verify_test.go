package volume

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/id"
)

// gathering answers once so many objects are looked for at the same time.
type gathering struct {
	store.Store
	want int32
	came atomic.Int32
	all  chan struct{}
}

func (g *gathering) Head(ctx context.Context, key string) (store.Object, error) {
	if g.came.Add(1) == g.want {
		close(g.all)
	}
	select {
	case <-g.all:
		return g.Store.Head(ctx, key)
	case <-ctx.Done():
		return store.Object{}, ctx.Err()
	}
}

// A commit looks for its packs side by side. One of many packs is sent again if others of many are looked for.
func TestCommit_LooksForPacksSideBySide(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	vol := w.create("data")
	_, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	a := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(a.open(agentapi.MountRW))
	snap := id.New[id.Snapshot]()
	const packs = looksAtOnce + 1
	var last pack
	var others []int64
	for i := range packs {
		p, err := a.build(map[string][]byte{"f": noise(10)})
		w.Must(err)
		_, err = a.grant(snap, p)
		w.Must(err)
		w.Must(w.store.Put(t.Context(), store.Key(w.domain(vol.ID), p.n), p.body))
		if last = p; i < packs-1 {
			others = append(others, p.n)
		}
	}
	w.serveFrom(&gathering{Store: w.store, want: looksAtOnce, all: make(chan struct{})})
	leave := func() {}
	for range bigCommitsPerOrg {
		leave, err = w.v.Hosts.commits.verifier.looking.Take(t.Context(), w.who.Org)
		w.Must(err)
	}
	if err := a.commit(snap, last, others...); code(err) != agentapi.VolumeAway {
		t.Fatalf("one commit of many packs more than a server looks for: %v", err)
	}
	other := w.Org("other")
	if leaveOther, err := w.v.Hosts.commits.verifier.looking.Take(t.Context(), other); err != nil {
		t.Errorf("the commits of one organisation keep another from its own: %v", err)
	} else {
		leaveOther()
	}
	leave()
	w.Must(a.commit(snap, last, others...))
}

// However many merges of one organisation are under way, another one's runs.
func TestMerges_OneOrganisationLeavesSomeToOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	for range mergesPerOrg {
		_, err := w.v.Hosts.rounds.merges.Take(t.Context(), w.who.Org)
		w.Must(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := w.v.Hosts.rounds.merges.Take(soon, w.who.Org); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one merge more than an organisation may have: %v", err)
	}
	_, err := w.v.Hosts.rounds.merges.Take(t.Context(), w.Org("other"))
	w.Must(err)
}
