package fairness

import (
	"cmp"
	"maps"
	"slices"
	"sort"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/money"
)

// Lease is the frozen terms of one lease of a cluster.
type Lease struct {
	Operator id.Org
	// Rate is what the renter pays per hour, in micro-units.
	Rate money.Micro
	// StandbyRate is what a culprit or relief pays per hour for this lease, in micro-units: at most Rate (see
	// StandbyRate).
	StandbyRate money.Micro
	// SharePPM is the host's part of every charge, in millionths; the rest is the platform's fee.
	SharePPM int64
	// Bond is everything that was ever reserved for this lease's failures, in nano-units: what is still held plus what was
	// already taken.
	Bond money.Nano
}

// Run is one judged stretch of a cluster's life.
type Run struct {
	Facts
	Verdict
}

// Relief is the caps on what the platform adds for time that no one is to blame for, in millionths of the usage fee of
// the same cluster. Neither may exceed 1,000,000.
type Relief struct {
	UndecidedPPM int64 // of the fee, for undecided time
	TotalPPM     int64 // of the fee, for undecided and platform time together
}

// DefaultRelief pays half of the fee for undecided time, and all of it when the platform itself was deaf.
var DefaultRelief = Relief{UndecidedPPM: 500_000, TotalPPM: 1_000_000}

// Money is what a cluster's runs come to in total, in nano-units. All amounts are cumulative: to post, subtract what
// was posted before.
type Money struct {
	Usage   []Usage        // by lease
	Standby []Standby      // by victim, then culprit; only pairs that owe anything
	Relief  []ReliefAmount // by lease
}

// Usage is what one lease's running time comes to. Renter = Host + Fee.
type Usage struct {
	MS                int64 // billed
	Renter, Host, Fee money.Nano
}

// Standby is what one lease owes another for the time that it made the other lose. Paid = Host + Fee.
type Standby struct {
	Victim, Culprit int   // indexes of leases
	MS              int64 // milliseconds for which the culprit owes the victim
	Due             money.Nano
	Paid            money.Nano // of Due, from the culprit's bond
	Host, Fee       money.Nano
}

// ReliefAmount is what one host is due, and gets, from the platform. Only the host's part is paid: the platform takes
// no fee on it.
type ReliefAmount struct {
	UndecidedMS, PlatformMS     int64
	UndecidedDue, PlatformDue   money.Nano
	UndecidedPaid, PlatformPaid money.Nano
}

// Paid returns what the host gets.
func (r ReliefAmount) Paid() money.Nano { return r.UndecidedPaid + r.PlatformPaid }

// Pay returns what the cluster's runs come to. The runs may come in any order but must not overlap. usageFee is the fee
// that is posted on the cluster's usage; a higher one, or a larger bond, never lowers any amount.
//
//   - Usage: floor(Rate × ms / 3600) over all signed, billable milliseconds of a lease; the host gets
//     floor(renter × SharePPM / 1e6).
//   - Standby, for each pair of victim and culprit: floor(StandbyRate × ms / 3600), gross, over the milliseconds that
//     the victim signed while the culprit was to blame. Operators owe themselves nothing. Each bond pays in order of
//     time, within a millisecond in order of ranks, until it is empty.
//   - Relief: the host's part of undecided and of platform milliseconds, each floored by itself, in the same order,
//     until a cap is reached.
//
// What exceeds a bond or a cap is never paid.
func Pay(leases []Lease, runs []Run, usageFee money.Nano, caps Relief) Money {
	p := payment{
		leases: leases, bonds: make([]money.Nano, len(leases)), standby: map[[2]int]*account{},
		undecided: make([]account, len(leases)), platform: make([]account, len(leases)),
		forUndecided: money.Share(usageFee, caps.UndecidedPPM), forAll: money.Share(usageFee, caps.TotalPPM),
	}
	for k, l := range leases {
		p.bonds[k] = l.Bond
	}
	out := Money{Usage: make([]Usage, len(leases)), Relief: make([]ReliefAmount, len(leases))}
	for _, r := range slices.SortedFunc(slices.Values(runs), byTime) {
		for _, rank := range r.Ranks {
			out.Usage[rank.Lease].MS += rank.Signed.Intersect(r.Billable).Len()
		}
		for _, s := range r.Suspensions {
			p.suspension(r.Facts, s)
		}
	}
	for k, l := range leases {
		u := &out.Usage[k]
		u.Renter = money.CostOf(l.Rate, u.MS)
		u.Host = money.Share(u.Renter, l.SharePPM)
		u.Fee = u.Renter - u.Host
		out.Relief[k] = ReliefAmount{
			UndecidedMS: p.undecided[k].ms, UndecidedDue: p.hostPart(k, p.undecided[k].ms), UndecidedPaid: p.undecided[k].paid,
			PlatformMS: p.platform[k].ms, PlatformDue: p.hostPart(k, p.platform[k].ms), PlatformPaid: p.platform[k].paid,
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(p.standby),
		func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
		a, v := p.standby[key], leases[key[0]]
		s := Standby{Victim: key[0], Culprit: key[1], MS: a.ms, Due: money.CostOf(v.StandbyRate, a.ms), Paid: a.paid}
		s.Host = money.Share(s.Paid, v.SharePPM)
		s.Fee = s.Paid - s.Host
		out.Standby = append(out.Standby, s)
	}
	return out
}

// payment is what is paid so far while Pay walks through time.
type payment struct {
	leases               []Lease
	bonds                []money.Nano        // what is left
	standby              map[[2]int]*account // by victim and culprit
	undecided, platform  []account           // by victim
	forUndecided, forAll money.Nano          // relief that is left
}

// account is what a party is owed for ms milliseconds, of which paid is paid.
type account struct {
	ms   int64
	paid money.Nano
}

func (p *payment) hostPart(lease int, ms int64) money.Nano {
	return money.Share(money.CostOf(p.leases[lease].StandbyRate, ms), p.leases[lease].SharePPM)
}

// claim is one account that grows with every millisecond, and what it is owed after a number of them.
type claim struct {
	*account
	due func(ms int64) money.Nano
}

// suspension pays for one suspension, in pieces within which the same ranks have signed.
func (p *payment) suspension(f Facts, s Suspension) {
	signed := make([]interval.Set, len(f.Ranks))
	cuts := []int64{s.Start, s.End}
	for v, r := range f.Ranks {
		if slices.Contains(s.Culprits, v) {
			continue
		}
		signed[v] = r.Signed.Clip(s.Span)
		cuts = append(cuts, signed[v].Flat()...)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	at := make([]int, len(f.Ranks)) // the first span of each rank that ends after the piece begins
	for k := range len(cuts) - 1 {
		piece := interval.Span{Start: cuts[k], End: cuts[k+1]}
		var victims []int // leases, in order of rank
		for v := range f.Ranks {
			for at[v] < len(signed[v]) && signed[v][at[v]].End <= piece.Start {
				at[v]++
			}
			if at[v] < len(signed[v]) && signed[v][at[v]].Start <= piece.Start {
				victims = append(victims, f.Ranks[v].Lease)
			}
		}
		p.piece(f, s, piece, victims)
	}
}

// piece pays the victims for one piece of a suspension.
func (p *payment) piece(f Facts, s Suspension, piece interval.Span, victims []int) {
	if !s.Class.Blames() {
		p.relieve(s.Class, piece.Len(), victims)
		return
	}
	for turn, rank := range s.Culprits {
		ms := turns(piece, int64(turn), int64(len(s.Culprits)))
		if ms == 0 {
			continue
		}
		culprit := f.Ranks[rank].Lease
		var claims []claim
		for _, v := range victims {
			if p.leases[v].Operator == p.leases[culprit].Operator {
				continue
			}
			a := p.standby[[2]int{v, culprit}]
			if a == nil {
				a = new(account)
				p.standby[[2]int{v, culprit}] = a
			}
			claims = append(claims, claim{a, func(ms int64) money.Nano { return money.CostOf(p.leases[v].StandbyRate, ms) }})
		}
		p.bonds[culprit] -= settle(claims, ms, p.bonds[culprit])
	}
}

// relieve pays the victims from relief.
func (p *payment) relieve(class Class, ms int64, victims []int) {
	accounts, left := p.undecided, min(p.forUndecided, p.forAll)
	if class == Platform {
		accounts, left = p.platform, p.forAll
	}
	claims := make([]claim, len(victims))
	for i, v := range victims {
		claims[i] = claim{&accounts[v], func(ms int64) money.Nano { return p.hostPart(v, ms) }}
	}
	paid := settle(claims, ms, left)
	p.forAll -= paid
	if class != Platform {
		p.forUndecided -= paid
	}
}

// turns returns how many milliseconds t of the span have t mod n = turn.
func turns(s interval.Span, turn, n int64) int64 {
	before := func(t int64) int64 { return (t - turn + n - 1) / n } // of [0, t); t ≥ 0, 0 ≤ turn < n
	return before(s.End) - before(s.Start)
}

// settle lets every claim grow by ms milliseconds and pays what they are owed millisecond by millisecond, in the order
// of the claims, until left is spent. It returns what it paid.
func settle(claims []claim, ms int64, left money.Nano) (paid money.Nano) {
	owed := func(more int64) (sum money.Nano) {
		for _, c := range claims {
			sum += c.due(c.ms+more) - c.paid
		}
		return sum
	}
	if left > 0 { // so nothing was cut before: every claim is paid up
		whole := int64(sort.Search(int(ms), func(i int) bool { return owed(int64(i)+1) > left }))
		pay := func(ms int64) {
			for _, c := range claims {
				x := min(c.due(c.ms+ms)-c.paid, left-paid)
				c.account.paid += x
				paid += x
			}
		}
		pay(whole)
		if whole < ms {
			pay(whole + 1) // in which left runs out
		}
	}
	for _, c := range claims {
		c.account.ms += ms
	}
	return paid
}

// byTime orders runs by their beginning.
func byTime(a, b Run) int { return cmp.Compare(a.Facts.Run.Start, b.Facts.Run.Start) }
