// Package peers lets the ranks of one cluster get the packs of a volume from each other while they restore it, so that
// the store is read about once however many ranks there are.
//
// Each pack has an owner among the ranks, which all ranks compute alike. The owner gets the pack from the store, once,
// and keeps it on its disk until all ranks have restored; the others request it from the owner, over the cluster's
// overlay, and verify its hash as the control plane has it. Whatever goes wrong with an owner, a rank gets the pack
// from the store itself.
//
// Invariants:
//   - Only packs as they lie in the store, sealed, are sent, and only those of the snapshot that is being restored.
//   - A request is signed with a key that comes from the key of the data domain, which never leaves the hosts'
//     processes. Workloads share the network, and can connect but not sign.
//   - A pack from a peer is used only if its hash is the one that the control plane has.
//   - Every wait has an end, and a peer that failed is left alone for a while: a bad peer makes a restore slower, never
//     wrong.
//   - Memory, connections, answers at once and room on the disk are bounded.
package peers

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// Port is where a rank answers at its overlay address, from the restore on until its workload may begin.
const Port = 29401

// Cluster is what a rank knows of the others.
type Cluster struct {
	NetNS string `json:"netns"` // path of the network namespace that has the overlay; "": this process's own
	Rank  int    `json:"rank"`  // this one
	Ranks []Rank `json:"ranks"` // all of them, this one included
}

// Rank is one rank.
type Rank struct {
	Rank    int    `json:"rank"`
	Address string `json:"address"` // in the overlay; with a port, if it is not Port
}

// own is this rank's address.
func (c Cluster) own() string {
	addr, _ := c.of(c.Rank)
	return addr
}

// of returns where a rank answers.
func (c Cluster) of(rank int) (addr string, ok bool) {
	for _, r := range c.Ranks {
		if r.Rank == rank {
			return withPort(r.Address)
		}
	}
	return "", false
}

func withPort(address string) (string, bool) {
	if a, err := netip.ParseAddr(address); err == nil {
		return net.JoinHostPort(a.String(), strconv.Itoa(Port)), true
	}
	_, err := netip.ParseAddrPort(address)
	return address, err == nil
}

// owners returns the ranks that may get a pack from the store, the first choice first: those with the highest hashes
// together with the pack. When a cluster has other ranks, only the packs of those that left or came have other owners.
func (c Cluster) owners(volume string, n int64) []int {
	type choice struct {
		score uint64
		rank  int
	}
	all := make([]choice, 0, len(c.Ranks))
	for _, r := range c.Ranks {
		h := fnv.New64a()
		_, _ = h.Write([]byte(volume))
		var b [16]byte
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		binary.LittleEndian.PutUint64(b[8:], uint64(r.Rank))
		_, _ = h.Write(b[:])
		all = append(all, choice{mix(h.Sum64()), r.Rank})
	}
	slices.SortFunc(all, func(a, b choice) int { return cmp.Compare(b.score, a.score) })
	var out []int
	for _, x := range all[:min(len(all), choices)] {
		out = append(out, x.rank)
	}
	return out
}

// choices is how many owners a pack has: the second one stands in for a first one that does not answer.
const choices = 2

// mix spreads what differs in the last bytes over all bits.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// perRank is how many packs of each owner lie in one window of the order, on average.
const perRank = 32

// order sorts packs as this rank should read them: window by window, so that owners keep few, and within a window first
// its own, then those of the next rank, and so on. So each rank is asked by one other at a time.
func (c Cluster) order(volume string, packs []int64) []int64 {
	out := slices.Clone(packs)
	slices.Sort(out)
	if len(c.Ranks) == 0 {
		return out
	}
	far := make(map[int64]int, len(out))
	for _, n := range out {
		far[n] = c.distance(volume, n)
	}
	for window := range slices.Chunk(out, perRank*len(c.Ranks)) {
		slices.SortStableFunc(window, func(a, b int64) int { return far[a] - far[b] })
	}
	return out
}

// distance returns how many ranks after this one the owner of a pack comes.
func (c Cluster) distance(volume string, n int64) int {
	own, self := 0, 0
	owner := c.owners(volume, n)[0]
	for i, r := range c.Ranks {
		if r.Rank == owner {
			own = i
		}
		if r.Rank == c.Rank {
			self = i
		}
	}
	return (own - self + len(c.Ranks)) % len(c.Ranks)
}

// signed returns what a request's code covers: the volume, the pack, who is asked, and the minute.
func signed(volume string, n int64, addr string, minute int64) []byte {
	b := []byte(volume + "\x00" + addr + "\x00")
	b = binary.BigEndian.AppendUint64(b, uint64(n))
	return binary.BigEndian.AppendUint64(b, uint64(minute))
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// A Signer computes the codes of requests: chunk.Keys.
type Signer interface{ Sign(request []byte) []byte }
