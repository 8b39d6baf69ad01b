package volume

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/musterhq/muster/agent/net/peers"
	"github.com/musterhq/muster/internal/data/chunk"
)

// peered opens the volumes of a cluster of n ranks, which exchange packs over loopback. alter changes what a rank
// believes about the cluster.
func (p platform) peered(t *testing.T, n int, alter func(rank int, c *peers.Cluster)) (roots []string, vs []*Volume,
	groups []*peers.Group) {
	t.Helper()
	keys, err := chunk.NewKeys(domainKey)
	if err != nil {
		t.Fatal(err)
	}
	var c peers.Cluster
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c.Ranks = append(c.Ranks, peers.Rank{Rank: i, Address: l.Addr().String()})
		l.Close()
	}
	for i := range n {
		mine := c
		mine.Rank = i
		if alter != nil {
			alter(i, &mine)
		}
		s := peers.NewServer(mine, slog.New(slog.DiscardHandler))
		t.Cleanup(s.Close)
		root, cfg := newRoot(t), Config{}
		cfg = p.config(root)
		cfg.Peers = s.Join(cfg.Mount.Volume, keys, cfg.Log)
		v, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cfg.Peers.Close(); v.Close() })
		roots, vs, groups = append(roots, root), append(vs, v), append(groups, cfg.Peers)
	}
	return roots, vs, groups
}

// packed is a platform with a volume of n bytes in many packs of several snapshots, of which the last one needs some
// only in part. It returns what a restore has to be like.
func packed(t *testing.T) (p platform, want string) {
	t.Helper()
	p = newPlatform(t)
	root := newRoot(t)
	v := p.attach(t, root)
	for i := range 4 {
		for j := range 3 {
			write(t, filepath.Join(dataOf(root), fmt.Sprintf("d%d", i), fmt.Sprintf("f%d", j)), 3<<20, uint64(10*i+j))
		}
		v.mustSnapshot(t)
	}
	if err := os.Remove(filepath.Join(dataOf(root), "d1", "f1")); err != nil {
		t.Fatal(err)
	}
	v.mustSnapshot(t)
	return p, listing(t, dataOf(root))
}

// Four ranks restore at the same time: the store serves hardly more than one of them needs, and every rank has every
// byte. Their next snapshots find nothing to send. Without peers the store would serve four times as much; on a machine
// that tests other things at the same time, a rank may find a peer too slow, and load a pack itself.
func TestRestore_RanksLoadTheStoreOnce(t *testing.T) {
	p, want := packed(t)
	before := p.Served()
	p.attach(t, newRoot(t))
	once := p.Served() - before
	roots, vs, groups := p.peered(t, 4, nil)
	before = p.Served()
	var all sync.WaitGroup
	for i, v := range vs {
		all.Go(func() {
			if err := v.Restore(t.Context(), nil); err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		})
	}
	all.Wait()
	served := p.Served() - before
	for i, root := range roots {
		if got := listing(t, dataOf(root)); got != want {
			t.Errorf("rank %d restored:\n%s\nwant:\n%s", i, got, want)
		}
		t.Logf("rank %d: %+v", i, groups[i].Stats())
	}
	if served > 2*once {
		t.Errorf("the store served %d bytes to four ranks, %d to one", served, once)
	}
	t.Logf("the store served %d bytes to four ranks, %d to one", served, once)
}

// A rank restores although another rank's address is wrong and never answers, and although its peers have finished and
// deleted the packs that they kept.
func TestRestore_WithoutPeers(t *testing.T) {
	t.Parallel()
	p, want := packed(t)
	roots, vs, groups := p.peered(t, 3, func(rank int, c *peers.Cluster) {
		if rank == 0 {
			ranks := append([]peers.Rank(nil), c.Ranks...)
			ranks[1].Address = "127.0.0.1:1"
			c.Ranks = ranks
		}
	})
	var all sync.WaitGroup
	for i, v := range vs[:2] {
		all.Go(func() {
			if err := v.Restore(t.Context(), nil); err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		})
	}
	all.Wait()
	groups[0].Close()
	groups[1].Close()
	if err := vs[2].Restore(t.Context(), nil); err != nil {
		t.Error(err)
	}
	for i, root := range roots {
		if got := listing(t, dataOf(root)); got != want {
			t.Errorf("rank %d restored:\n%s\nwant:\n%s", i, got, want)
		}
	}
}
