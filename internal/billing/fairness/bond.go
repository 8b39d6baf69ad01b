package fairness

import (
	"time"

	"github.com/musterhq/muster/internal/money"
)

// BondTime is how much standby of all its neighbours a bond covers. The longest time that one host can suspend a gang
// within an hour, before its third doubt is final, is 283 s.
const BondTime = 300 * time.Second

// BondFloor is the standby that must be left in a bond: with less, the next doubt about its host is final at once.
const BondFloor = 130 * time.Second

// Bond returns what must be reserved for lease k of a gang, in nano-units: the standby rates of all leases of other
// operators for the given time, rounded up. It is 0 when all leases are of one operator.
func Bond(leases []Lease, k int, covers time.Duration) money.Nano {
	var rates money.Micro
	for _, l := range leases {
		if l.Operator != leases[k].Operator {
			rates += l.StandbyRate
		}
	}
	return money.CostCeil(rates, covers.Milliseconds())
}

// Price is what one lease of a gang costs, for StandbyRate.
type Price struct {
	Rate money.Micro // of the whole lease, per hour
	GPUs int         // at least 1
}

// twice returns two times what the given number of GPUs would cost at the price of this lease, rounded down.
func (p Price) twice(gpus int) money.Micro {
	return 2 * money.Micro(int64(p.Rate)*int64(gpus)/int64(p.GPUs))
}

// StandbyRate returns at which rate per hour a lease is paid for standby: its own rate, but no more than twice what is
// usual, so that no one can raise what its neighbours are liable for. What is usual is the median price per GPU of the
// model over the last seven days, when at least five operators contribute to it. Otherwise (median 0) it is the
// cheapest of the gang's leases of other operators, by GPU. Without those there is no one to pay standby to, and the
// rate is the lease's own.
func StandbyRate(own Price, medianPerGPU money.Micro, others []Price) money.Micro {
	rate := own.Rate
	if medianPerGPU > 0 {
		return min(rate, 2*medianPerGPU*money.Micro(own.GPUs))
	}
	for _, o := range others {
		rate = min(rate, o.twice(own.GPUs))
	}
	return rate
}
