package agent_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/musterhq/muster/agent/net/netns"
	"github.com/musterhq/muster/agent/net/peers"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/storage/volume/volumetest"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// dataSet commits a volume with a file of n bytes and returns the file's hash.
func dataSet(t *testing.T, p *volumetest.Platform, n int) [32]byte {
	t.Helper()
	h := newVolumeHost(t, p)
	spec := h.launch(h.mounted())
	h.await(spec.LeaseRef, "running", running)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	if err := os.WriteFile(filepath.Join(h.data(spec.LeaseRef), "set"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	h.request(spec, p)
	h.want()
	h.await(spec.LeaseRef, "gone", gone)
	return sha256.Sum256(b)
}

func (h *host) data(ref agentapi.LeaseRef) string {
	return scratch.Data(h.scratch.VolumePath(ref, "vol_a"))
}

// readers starts a cluster of n hosts that read a volume, as far as the hosts have made their keys, and returns what
// they are wanted to run, with the peers' keys.
func readers(t *testing.T, p *volumetest.Platform, n int) (hosts []*host, specs []agentapi.LeaseSpec) {
	t.Helper()
	cluster := id.New[id.Cluster]().String()
	var known []agentapi.Peer
	for rank := range n {
		known = append(known, agentapi.Peer{Rank: rank, Address: fmt.Sprintf("10.77.0.%d", rank+1)})
		hosts = append(hosts, newVolumeHost(t, p))
	}
	others := func(rank int) (out []agentapi.Peer) {
		out = append(out, known[:rank]...)
		return append(out, known[rank+1:]...)
	}
	for rank, h := range hosts {
		s := h.mounted()
		s.Command = []string{"/job", "run"}
		s.Mounts[0].Mode, s.Mounts[0].Snapshot = agentapi.MountRO, agentapi.SnapshotPolicy{}
		s.Cluster, s.Rank, s.Nodes = cluster, rank, n
		s.Network.Address, s.Network.Peers = known[rank].Address, others(rank)
		specs = append(specs, s)
		h.want(s)
	}
	for rank, h := range hosts {
		st := h.await(specs[rank].LeaseRef, "waiting for its peers",
			func(st agentapi.LeaseStatus) bool { return st.WGKey != "" && st.Progress.Step == "peers" })
		known[rank].Key, known[rank].Endpoints = st.WGKey, st.Endpoints
	}
	for rank := range specs {
		specs[rank].Network.Peers = others(rank)
	}
	return hosts, specs
}

// Four hosts restore one volume for the ranks of one cluster, over a real overlay: the store serves hardly more than
// one of them needs, and each rank finds every byte before its command starts. Once it may start, its host holds the
// port no more.
func TestRanksRestoreFromEachOther(t *testing.T) {
	p := volumetest.New(t)
	const size = 60 << 20
	sum := dataSet(t, p, size)
	hosts, specs := readers(t, p, 4)
	before := p.Served()
	var all sync.WaitGroup
	for rank, h := range hosts {
		h.want(specs[rank])
	}
	for rank, h := range hosts {
		all.Go(func() { h.await(specs[rank].LeaseRef, "ready", ready) })
	}
	all.Wait()
	served := p.Served() - before
	for rank, h := range hosts {
		b, err := os.ReadFile(filepath.Join(h.data(specs[rank].LeaseRef), "set"))
		if err != nil || sha256.Sum256(b) != sum {
			t.Errorf("rank %d has %d bytes, which are not those: %v", rank, len(b), err)
		}
	}
	if served > size*3 { // four times without peers; on a busy machine, a peer may be too slow for some packs
		t.Errorf("the store served %d bytes for %d", served, size)
	}
	t.Logf("the store served %d bytes to four ranks, for %d", served, size)
	for rank, h := range hosts {
		specs[rank].Go = true
		h.want(specs[rank])
	}
	for rank, h := range hosts {
		h.await(specs[rank].LeaseRef, "running", running)
		poll(t, "the port", func() bool {
			l, err := h.listenAs(specs[rank])
			if err == nil {
				l.Close()
			}
			return err == nil
		})
	}
}

// listenAs takes the port of the restore at a rank's address in the cluster, as its workload could.
func (h *host) listenAs(spec agentapi.LeaseSpec) (l net.Listener, err error) {
	h.t.Helper()
	c, err := h.engine.Inspect(h.t.Context(), spec.LeaseRef, "guest")
	if err != nil {
		return nil, err
	}
	ns, err := os.Open(c.NetNS())
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	err = netns.Inside(ns, func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf("%s:%d", spec.Network.Address, peers.Port))
		return err
	})
	return l, err
}

// The ports of two of the four ranks are taken by programs in their networks, one that accepts everything and never
// answers, one that answers garbage: all ranks have every byte all the same.
func TestRanksRestoreBesideHostilePrograms(t *testing.T) {
	t.Parallel()
	p := volumetest.New(t)
	sum := dataSet(t, p, 40<<20)
	hosts, specs := readers(t, p, 4)
	for rank := range 2 {
		l, err := hosts[rank].listenAs(specs[rank])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				if rank == 1 {
					_, _ = c.Write(append([]byte("HTTP/1.1 200 OK\r\n\r\n"), bytes.Repeat([]byte("x"), 1<<20)...))
				}
			}
		}()
	}
	for rank, h := range hosts {
		h.want(specs[rank])
	}
	for rank, h := range hosts {
		h.await(specs[rank].LeaseRef, "ready", ready)
		b, err := os.ReadFile(filepath.Join(h.data(specs[rank].LeaseRef), "set"))
		if err != nil || sha256.Sum256(b) != sum {
			t.Errorf("rank %d has %d bytes, which are not those: %v", rank, len(b), err)
		}
	}
}
