// Package metering turns proven time into money: leases, billing windows, prices, signed segments, authorisation and
// charges.
//
// What always holds:
//   - A lease is charged for (∪ signed segments) ∩ windows ∩ its life, to the millisecond, and for nothing else.
//     Silence charges nothing and forfeits nothing until the settlement deadline.
//   - Posted = floor(Σ rate × ms / 3600) nano-units, cumulative per lease; the host's part is floor(posted × ppm /
//     1e6), cumulative; the fee is the rest. So renter = host + fee exactly, and any permutation, duplication, batching
//     or replay of segments ends in the same charges.
//   - Nothing is posted past confirmed_until of an open window, so what is posted is never taken back.
//   - What is proven is on the meter with the commit that stores it. The ledger may be behind it while a window is
//     open: by less than an hour of each lease, and not longer than 65 minutes (posting.go). When no
//     window is open, and when a lease is settled, they agree.
//   - Every millisecond that is not posted and could still be up to run_until is covered by the cluster's hold; windows
//     end at run_until; the hold cannot fall below zero. So a charge can never exceed what was authorised.
//   - Segments, meter and ledger entries change in one transaction, with the meters locked in lease-id order before the
//     ledger's accounts; leases are read after their meters are locked.
//   - PostgreSQL's clock decides; hosts' clocks are mapped to it only through numbered, immutable anchors.
//
// The rules are pure (charge.go, the decisions of authorise.go, and when to book in posting.go); the rest reads, locks
// and writes around them.
package metering
