package billproof

import (
	"bytes"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/merkle"
	"github.com/musterhq/muster/internal/money"
)

// Verdict is the result of verifying a proof.
type Verdict struct {
	// Problems describes what does not hold. If it is empty the bill is correct.
	Problems []string
	Leases   []LeaseVerdict
	Segments int
	Head     *Batch // newest batch of the chain: compare its hash with one that you recorded elsewhere
	Waiting  int    // entries that are not in the chain yet
}

// LeaseVerdict is one lease's recomputed bill.
type LeaseVerdict struct {
	Lease        string
	Rank         int
	Renter, Host money.Nano
	MS           int64
	NotBooked    money.Nano // proven but not charged yet
}

func (v *Verdict) problem(format string, a ...any) {
	v.Problems = append(v.Problems, fmt.Sprintf(format, a...))
}

// Verify recomputes the bill from the segments and compares it with the ledger entries. It reads nothing but f.
func Verify(f File) Verdict {
	var v Verdict
	if f.Version < 1 || f.Version > Version {
		v.problem("the file is of version %d; this program reads versions up to %d", f.Version, Version)
		return v
	}
	if len(f.Leases) == 0 {
		v.problem("the file has no leases")
	}
	anchors := map[string]agentapi.Anchor{}
	for _, a := range f.Anchors {
		anchors[fmt.Sprintf("%s/%s/%d", a.Host, a.BootID, a.Number)] = a.Anchor
	}
	v.chain(f)
	booked := v.sumByLease(f)
	for _, l := range f.Leases {
		v.segments(l, anchors)
		v.Segments += len(l.Segments)
		b := booked[l.ID]
		v.bill(f, l, b)
		delete(booked, l.ID)
	}
	for lease := range booked {
		v.problem("the ledger charges for %s, for which the file has no proof", lease)
	}
	return v
}

// segments verifies that the lease's host signed each segment, and that its end follows from its anchor and clock.
func (v *Verdict) segments(l Lease, anchors map[string]agentapi.Anchor) {
	seen := map[string]bool{}
	for _, s := range l.Segments {
		name := fmt.Sprintf("segment %d of %s (start %d, boot %s)", s.Seq, l.ID, s.Epoch, s.BootID)
		if s.Lease != l.ID {
			v.problem("%s is of another lease, %s", name, s.Lease)
		}
		if !slices.ContainsFunc(l.HostKeys, func(k []byte) bool { return s.SignedBy(l.Host, k) }) {
			v.problem("%s is not signed by the host, or was changed", name)
		}
		key := fmt.Sprintf("%d/%s/%d", s.Epoch, s.BootID, s.Seq)
		if seen[key] {
			v.problem("%s occurs twice", name)
		}
		seen[key] = true
		a, ok := anchors[fmt.Sprintf("%s/%s/%d", l.Host, s.BootID, s.Anchor)]
		switch {
		case !ok:
			v.problem("%s names time anchor %d, which is not in the file", name, s.Anchor)
		case s.EndMS != max(a.At(s.BootEndMS), s.StartMS):
			v.problem("%s ends at %d, but at %d by its time anchor", name, s.EndMS, a.At(s.BootEndMS))
		}
	}
}

// sums is what the ledger entries of a lease add up to.
type sums struct{ renter, host int64 }

// sumByLease sums the usage entries by lease. Each entry's key contains the lease and its cumulative charge.
func (v *Verdict) sumByLease(f File) map[string]*sums {
	out := map[string]*sums{}
	for _, e := range f.Entries {
		if e.Kind != "usage" {
			continue
		}
		part := strings.Split(e.Key, ":")
		if len(part) != 3 || part[0] != "usage" {
			v.problem("entry %s has the key %q, which names no lease", e.ID, e.Key)
			continue
		}
		s := out[part[1]]
		if s == nil {
			s = &sums{}
			out[part[1]] = s
		}
		for _, t := range e.Transfers {
			if t.Debit != "renter_hold" || t.Amount <= 0 || t.Currency != f.Currency || t.Credit != "host_pending" &&
				t.Credit != "platform_fee" {
				v.problem("entry %s moves %d %s from %s to %s: not a charge", e.ID, t.Amount, t.Currency, t.Debit, t.Credit)
			}
			s.renter += t.Amount
			if t.Credit == "host_pending" {
				s.host += t.Amount
			}
		}
		if part[2] != strconv.FormatInt(s.renter, 10) {
			v.problem("by entry %s, %s has been charged %s in total; the entries up to it add up to %d: one is missing or "+
				"was added", e.ID, part[1], part[2], s.renter)
		}
	}
	return out
}

// chain verifies that every entry leads to its batch's root and every batch to the previous one.
func (v *Verdict) chain(f File) {
	batches := map[int64]Batch{}
	for i, b := range f.Batches {
		if !bytes.Equal(b.Hash, b.Sum()) {
			v.problem("the hash of batch %d of the chain is wrong", b.N)
		}
		if i > 0 && (b.N != f.Batches[i-1].N+1 || !bytes.Equal(b.Prev, f.Batches[i-1].Hash)) {
			v.problem("batch %d of the chain does not follow batch %d", b.N, f.Batches[i-1].N)
		}
		batches[b.N] = b
	}
	if n := len(f.Batches); n > 0 {
		v.Head = &f.Batches[n-1]
	}
	for _, e := range f.Entries {
		if e.Batch == 0 {
			v.Waiting++
			continue
		}
		b, ok := batches[e.Batch]
		if !ok {
			v.problem("entry %s names batch %d of the chain, which is not in the file", e.ID, e.Batch)
		} else if root, whole := merkle.RootOf(e.Hash(), e.Position, b.Txs, e.Path); !whole || !bytes.Equal(root[:], b.Root) {
			v.problem("entry %s is not the one that batch %d of the chain holds", e.ID, e.Batch)
		}
	}
}

// bill compares a lease's recomputed charge with what the platform states and what was posted.
func (v *Verdict) bill(f File, l Lease, booked *sums) {
	if booked == nil {
		booked = &sums{}
	}
	if len(l.Prices) == 0 || l.SharePPM < 0 || l.SharePPM > 1_000_000 {
		v.problem("%s has no price, or a share out of range", l.ID)
		return
	}
	renter, host, ms := compute(l, f.Windows)
	if !renter.IsInt64() {
		v.problem("%s: the bill is out of range", l.ID)
		return
	}
	r := LeaseVerdict{
		Lease:  l.ID,
		Rank:   l.Rank,
		Renter: money.Nano(renter.Int64()),
		Host:   money.Nano(host.Int64()),
		MS:     ms,
	}
	r.NotBooked = r.Renter - l.Billed
	v.Leases = append(v.Leases, r)
	switch {
	case r.NotBooked < 0 || l.BilledMS > ms:
		v.problem("%s was charged %s for %d ms; proven within its windows are %s for %d ms", l.ID, l.Billed, l.BilledMS,
			r.Renter, ms)
	case r.NotBooked > 0 && l.Settled:
		v.problem("%s is settled, and %s of what is proven was never charged", l.ID, r.NotBooked)
	case r.NotBooked == 0 && (l.HostPart != r.Host || l.Settled && l.BilledMS != ms):
		// Time that costs nothing may wait, too.
		v.problem("%s: the host's part is %s of %d ms; it should be %s of %d ms", l.ID, l.HostPart, l.BilledMS, r.Host, ms)
	}
	if booked.renter != int64(l.Billed) || booked.host != int64(l.HostPart) {
		v.problem("%s: the ledger has %s (the host's part %s), the statement has %s (%s)", l.ID, money.Nano(booked.renter),
			money.Nano(booked.host), l.Billed, l.HostPart)
	}
}

// compute applies the rule: (∪ segments) ∩ windows ∩ life, each moment at the price of its time, rounded down once.
func compute(l Lease, windows []Window) (renter, host *big.Int, ms int64) {
	type edge struct {
		at     int64
		s, w   int
		inLife int
	}
	var edges []edge
	add := func(from, until int64, e edge) {
		if from < until {
			e.at = from
			edges = append(edges, e, edge{until, -e.s, -e.w, -e.inLife})
		}
	}
	until := l.UntilMS
	if until == 0 {
		until = 1 << 62
	}
	add(l.FromMS, until, edge{inLife: 1})
	for _, s := range l.Segments {
		add(s.StartMS, s.EndMS, edge{s: 1})
	}
	for _, w := range windows {
		add(w.FromMS, w.UntilMS, edge{w: 1})
	}
	for _, p := range l.Prices {
		edges = append(edges, edge{at: p.FromMS})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if a.at != b.at {
			if a.at < b.at {
				return -1
			}
			return 1
		}
		return 0
	})
	var now edge
	rate := l.Prices[0].Rate
	next := 0
	numerator := new(big.Int)
	for i, e := range edges {
		now.s, now.w, now.inLife = now.s+e.s, now.w+e.w, now.inLife+e.inLife
		for next < len(l.Prices) && l.Prices[next].FromMS <= e.at {
			rate = l.Prices[next].Rate
			next++
		}
		if i+1 < len(edges) && now.s > 0 && now.w > 0 && now.inLife > 0 {
			d := edges[i+1].at - e.at
			ms += d
			numerator.Add(numerator, new(big.Int).Mul(big.NewInt(int64(rate)), big.NewInt(d)))
		}
	}
	renter = new(big.Int).Div(numerator, big.NewInt(3600)) // micro-units per hour × ms into nano-units
	host = new(big.Int).Div(new(big.Int).Mul(renter, big.NewInt(l.SharePPM)), big.NewInt(1_000_000))
	return renter, host, ms
}
