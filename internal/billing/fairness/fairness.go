// Package fairness is the rule of who is paid, by whom, while a rank of a gang is bad.
//
// A gang is a cluster whose ranks work together: when one rank is down, the others compute nothing useful. The renter
// pays only for time in which every required rank was proven up and every pair of ranks could talk. The other ranks are
// still paid for the time that they lose: from the bond of the host whose failure is proven, or, where no one is proven
// to be at fault, from a part of the fee that the platform took on the same cluster.
//
// Everything here is a pure function of facts: no clock, no I/O, no memory. The same facts give the same answer in
// whatever order they were learned. Time is unix milliseconds, prices are micro-units per hour, amounts nano-units. The
// cost is proportional to the number of intervals, not to the time that they cover.
//
//	Decide  which time of a run the renter pays for, and the class and culprits of the rest
//	Pay     what that comes to: usage, standby from bonds, relief
//	Posted, Decided  up to which moment both can no longer change
//
// # Invariants
//
// The tests of internal/testing/model hold these against a second, naive implementation and hosts that lie:
//
//   - I1 Renter. A lease is billed only for time that its host signed, in which all required ranks were attested and no
//     pair was down.
//   - I2 Order. The answer is a function of sets: permuting, repeating, batching or delaying facts changes nothing.
//     More proof never makes the billed time smaller.
//   - I3 Conservation. Renters' payments + bond debits + relief = hosts' earnings + platform fees, to the nano-unit.
//   - I4 No minting. Relief is never above the cap, which is never above the usage fee of the same cluster, and a fee
//     that became relief is not given back as a part of a credit (see FeeBack). So no set of colluding parties can take
//     more out of the platform than it paid in, whatever prices it sets.
//   - I5 No blame by voices. A host that attests, signs and reports in time is never a culprit, whatever others sign.
//   - I6 A culprit never pays more than its bond.
//   - I7 An honest host is paid for all of its signed time, except undecided or platform time beyond relief, and time
//     that a culprit without sufficient bond has caused.
//   - I8 One voice. If every rank is attested and reports in time, the claims of one rank alone change no bill, no
//     debit and no standby.
//   - I9 No time in which the platform was deaf is anyone's fault.
//   - I10 From all sources together a lease gets at most its rate for its signed time.
//   - I11 Standby is charged gross, fee included, at the victim's rate (up to a cap that the culprit's side cannot
//     set): a renter and a culprit who collude pay as much for a suspension as for running time.
//   - I12 Outage. Time in which the platform received nothing is billed as if it had received everything, provided that
//     the hosts prove it later; no one is debited for it.
//   - I13 A bond is debited only by standby of its own lease's suspensions.
package fairness

import "github.com/musterhq/muster/internal/interval"

// Facts is what is known about one stretch of a run with a fixed set of required ranks. When the required set changes,
// because a lost rank is ignored or replaced, the caller starts another Facts at that moment: the rule looks at each
// millisecond by itself, so a run may be cut anywhere without changing the result.
//
// Sets may reach beyond Run; what lies outside it is ignored. They are not modified.
type Facts struct {
	// Run is the time that is judged: from the moment at which all ranks run, or from the first start when a rank started
	// late (see Starts), to the moment at which the cluster was stopped. Run.Start must not be negative.
	Run interval.Span
	// Ranks are the required ranks: at least one. The position in this slice names a rank below.
	Ranks []Rank
	// Gaps is when the platform was deaf: the union of the deaf gaps, each with its settle-in, of all listeners
	// through which these ranks report.
	Gaps interval.Set
	// Undecided is the suspensions that the control plane wrote, from the moment of writing on, because ranks accused each
	// other without evidence.
	Undecided interval.Set
	// Carried is when a relay forwarded packets of a pair in both directions. It clears claims of one side only. The key
	// is ordered: A < B.
	Carried map[Pair]interval.Set
}

// Pair is two ranks, A < B.
type Pair struct{ A, B int }

// Rank is the facts about one required rank.
type Rank struct {
	// Lease is the index of the rank's lease in what Pay is given. Decide ignores it.
	Lease int
	// Signed is the time that the host proved with signed segments that state that the rank was up.
	Signed interval.Set
	// Attested is the time for which the host reported in time that the rank was up: accepted status reports of the
	// current epoch cover [good_since, moment of the report].
	Attested interval.Set
	// Unwell is when the host itself reported that the rank was not up. Signed and Attested do not contain it, and no
	// other rank can vouch for it.
	Unwell interval.Set
	// Silent is when the control plane's own log shows the host silent: reports missing for longer than LostAfter, or
	// changes that arrived too late. Decide removes Gaps from it.
	Silent interval.Set
	// RelaySilent is when the relay saw nothing from this host although a relay session was offered. It blames only when
	// the pair is down anyway.
	RelaySilent interval.Set
	// Deaf is what the host signed about its peers: during Deaf[j] it received nothing from rank j. The spans begin at the
	// last byte received.
	Deaf map[int]interval.Set
}

// Class is why time was suspended.
type Class string

const (
	// Platform time lies in a gap: the platform was deaf, and no one is to blame.
	Platform Class = "platform"
	// Proof time lacks the proof of the culprits that they were up.
	Proof Class = "proof"
	// Silence time has a pair of ranks down of which the culprits were silent to the platform.
	Silence Class = "silence"
	// Undecided time has ranks that accuse each other and no evidence. No one is to blame.
	Undecided Class = "undecided"
)

// Blames reports whether time of the class has culprits.
func (c Class) Blames() bool { return c == Proof || c == Silence }

// Suspension is time of a run for which the renter does not pay, with one reason.
type Suspension struct {
	interval.Span
	Class Class
	// Culprits are the ranks to blame, in ascending order: none for Platform and Undecided, at least one otherwise. Where
	// there are several, the one that pays for millisecond t is Culprits[t mod len(Culprits)].
	Culprits []int
}

// Verdict is what Decide makes of a run. Billable and the spans of Suspensions divide the run exactly.
type Verdict struct {
	// Billable is the billing window: each lease is charged for what its host signed within it.
	Billable interval.Set
	// Suspensions are the rest, in order of time. Neighbours that touch differ in class or culprits.
	Suspensions []Suspension
}
