// Package model has no code of its own: its tests prove the money. Random rentals are played through the real books,
// on a real PostgreSQL, with everything that can go wrong going wrong, and each bill is compared with an oracle that
// shares no code with what it judges.
//
// What its tests show, over at least ten million rented seconds each time, or as many as MUSTER_PROOF_SECONDS says:
//   - each lease is charged for (∪ segments) ∩ windows ∩ life at the prices of the time: to the nano-unit and the
//     millisecond, whatever was lost, repeated, reordered, batched, overlapping or on a clock that was set meanwhile;
//   - at commits in between, while windows are open: the meter's exact sum is the oracle's up to confirmed_until, what
//     is booked is less than that by less than a step of each lease, by nothing once no window is open,
//     and the hold covers what waits and all that may still be charged;
//   - renter = host + fee, holds are never overdrawn, and debits equal credits at every commit;
//   - statements that die, workers and databases that are killed, change nothing.
//
// The rule of who is paid in a gang (internal/billing/fairness) has an oracle of its own, which walks over every
// millisecond of random gangs that lie.
//
// `make mutants` breaks the rules one by one and shows that these tests notice (see docs/evidence/proof.md).
package model
