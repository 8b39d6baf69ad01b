package fairness

import (
	"time"

	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/money"
)

const (
	// CreditGapWindow is how long before a loss the platform must have received reports without a gap for the renter to
	// get a credit.
	CreditGapWindow = 10 * time.Minute
	// CreditLeast and CreditPPM cap the credits in 30 days whose cause the renter could have produced: the larger of an
	// amount in nano-units and a part of the renter's charges in 30 days, in millionths.
	CreditLeast = 5 * money.Unit
	CreditPPM   = 20_000
)

// Loss is the loss of a rank that may earn the renter a credit for the hour before it.
type Loss struct {
	Lost  int        // the rank that was lost
	Ended Suspension // the suspension with which the run ended
	Gaps  interval.Set

	// Inducible reports whether a renter could have caused the loss: line, network, guest, runtime, an error of the GPU.
	// It is false for a host that was reclaimed, was rebooted or never came back.
	Inducible bool
	// LastHour is what the lease was charged for the hour before the loss, Posted all that it was charged and Corrected
	// what was already given back of it.
	LastHour, Posted, Corrected money.Nano
	// Charged30d is all charges of the renter in 30 days, Credited30d the credits for inducible losses in that time.
	Charged30d, Credited30d money.Nano
	// PairCredited reports that this renter got a credit for an inducible loss from this operator within seven days.
	PairCredited bool
}

// Credit returns how much of a loss's credit is booked now and how much waits for a person to decide, in nano-units.
// There is none unless the lost rank alone was to blame for the end of the run and the platform could receive in the
// ten minutes before. Together with what was already given back, it never exceeds what was charged.
func Credit(l Loss) (book, hold money.Nano) {
	before := interval.Span{Start: l.Ended.Start - CreditGapWindow.Milliseconds(), End: l.Ended.End}
	if !l.Ended.Class.Blames() || len(l.Ended.Culprits) != 1 || l.Ended.Culprits[0] != l.Lost ||
		len(l.Gaps.Clip(before)) > 0 {
		return 0, 0
	}
	amount := max(0, min(l.LastHour, l.Posted-l.Corrected))
	if !l.Inducible {
		return amount, 0
	}
	if !l.PairCredited {
		left := max(CreditLeast, money.Share(l.Charged30d, CreditPPM)) - l.Credited30d
		book = max(0, min(amount, left))
	}
	return book, amount - book
}

// FeeBack returns how much of its fee the platform gives back as a part of a credit. part is what it had of the
// credited charge, usageFee its fee on the whole cluster, less what it gave back of it before, and relief what it paid
// to the cluster's hosts for time that no one was to blame for. A fee that went to hosts is not given back a second
// time: otherwise a renter who is also the operator of all hosts could earn both.
func FeeBack(part, usageFee, relief money.Nano) money.Nano { return max(0, min(part, usageFee-relief)) }
