package model

import "slices"

// gang is the facts about one cluster's run, millisecond by millisecond, for the oracle of internal/billing/fairness.
// Index t is the moment from + t. The oracle shares no code with what it judges: it loops over every millisecond, every
// rank and every pair, and adds up what each millisecond costs.
type gang struct {
	from  int64
	ticks int
	ranks []gangRank
	// gap is when the platform received nothing, written is the undecided suspensions of the control plane.
	gap, written bits
	// carried is when a relay carried both directions of a pair, by lower and higher rank.
	carried map[[2]int]bits
	// fee is posted on the cluster's usage: nil for all of it. forUndecided and forAll are the caps on relief, in
	// millionths of it.
	fee                  *int64
	forUndecided, forAll int64
}

type bits []bool

// gangRank is one rank and its lease. Rates are micro-units per hour.
type gangRank struct {
	operator            int
	rate, standby, ppm  int64
	bond                int64 // nano-units
	required            bits  // when the run needs this rank
	signed, attested    bits
	unwell              bits // reported by its own host
	silent, relaySilent bits
	deaf                map[int]bits // by peer
}

// gangVerdict is what must come out.
type gangVerdict struct {
	billable                     bits
	class                        []string // of each suspended millisecond, "" otherwise
	culprits                     [][]int
	up                           [][]bool // by millisecond and rank
	down                         []map[[2]int]bool
	billedMS                     []int64 // by rank
	renter, host                 []int64 // usage by rank
	owed                         map[[2]int]*gangDebt
	undecided, platform          []gangDebt // relief by rank, host's part
	debit                        []int64    // by culprit
	usageFee                     int64
	renters, hosts, fees, relief int64 // sums over everything
}

// gangDebt is what a rank is due for a number of milliseconds, and what it was paid.
type gangDebt struct{ ms, due, paid int64 }

// grow adds a millisecond; price says what they all cost. It pays at most what is left and returns the payment.
func (d *gangDebt) grow(price func(ms int64) int64, left int64) int64 {
	d.ms++
	d.due = price(d.ms)
	x := min(d.due-d.paid, left)
	d.paid += x
	return x
}

// nanoFor is what a number of milliseconds costs at a rate, rounded down to nano-units.
func nanoFor(rate, ms int64) int64 { return rate * ms / 3600 }

// millionths is a part of an amount, rounded down.
func millionths(amount, ppm int64) int64 { return amount * ppm / 1_000_000 }

// judge plays the rule. A rank that is not required at a moment does not exist at that moment.
func (g gang) judge() gangVerdict {
	n := len(g.ranks)
	v := gangVerdict{
		billable:  make(bits, g.ticks),
		class:     make([]string, g.ticks),
		culprits:  make([][]int, g.ticks),
		up:        make([][]bool, g.ticks),
		down:      make([]map[[2]int]bool, g.ticks),
		billedMS:  make([]int64, n),
		renter:    make([]int64, n),
		host:      make([]int64, n),
		owed:      map[[2]int]*gangDebt{},
		undecided: make([]gangDebt, n),
		platform:  make([]gangDebt, n),
		debit:     make([]int64, n),
	}
	for t := range g.ticks {
		g.decide(t, &v)
	}
	for k, r := range g.ranks {
		for t := range g.ticks {
			if r.required[t] && r.signed[t] && v.billable[t] {
				v.billedMS[k]++
			}
		}
		v.renter[k] = nanoFor(r.rate, v.billedMS[k])
		v.host[k] = millionths(v.renter[k], r.ppm)
		v.usageFee += v.renter[k] - v.host[k]
	}
	fee := v.usageFee
	if g.fee != nil {
		fee = *g.fee
	}
	leftUndecided, leftAll := millionths(fee, g.forUndecided), millionths(fee, g.forAll)
	for t := range g.ticks {
		for k, r := range g.ranks {
			if !r.required[t] || !r.signed[t] {
				continue
			}
			if v.class[t] == "" || slices.Contains(v.culprits[t], k) {
				continue
			}
			price := func(ms int64) int64 { return nanoFor(r.standby, ms) }
			hostPart := func(ms int64) int64 { return millionths(nanoFor(r.standby, ms), r.ppm) }
			switch v.class[t] {
			case "proof", "silence": // several culprits take turns
				c := v.culprits[t][(g.from+int64(t))%int64(len(v.culprits[t]))]
				if g.ranks[c].operator == r.operator {
					continue
				}
				if v.owed[[2]int{k, c}] == nil {
					v.owed[[2]int{k, c}] = &gangDebt{}
				}
				v.debit[c] += v.owed[[2]int{k, c}].grow(price, g.ranks[c].bond-v.debit[c])
			case "undecided":
				x := v.undecided[k].grow(hostPart, min(leftUndecided, leftAll))
				leftUndecided, leftAll = leftUndecided-x, leftAll-x
			case "platform":
				leftAll -= v.platform[k].grow(hostPart, leftAll)
			}
		}
	}
	v.fees = v.usageFee
	for k := range g.ranks {
		v.renters += v.renter[k]
		v.relief += v.undecided[k].paid + v.platform[k].paid
		v.hosts += v.host[k] + v.undecided[k].paid + v.platform[k].paid
	}
	for pair, d := range v.owed {
		host := millionths(d.paid, g.ranks[pair[0]].ppm)
		v.hosts += host
		v.fees += d.paid - host
	}
	return v
}

// decide judges one millisecond.
func (g gang) decide(t int, v *gangVerdict) {
	n := len(g.ranks)
	up, silent := make([]bool, n), make([]bool, n)
	v.up[t], v.down[t] = up, map[[2]int]bool{}
	any, well := false, true
	for k, r := range g.ranks {
		if !r.required[t] {
			continue
		}
		any = true
		vouched := g.gap[t] && !r.unwell.at(t)
		for j, p := range g.ranks {
			if j != k && p.required[t] && (!p.signed[t] || p.deaf[k].at(t)) {
				vouched = false
			}
		}
		up[k] = r.attested[t] || r.signed[t] || vouched
		silent[k] = r.silent[t] && !g.gap[t]
		well = well && up[k]
	}
	if !any {
		return // the cluster does not run
	}
	for i := range n {
		for j := i + 1; j < n; j++ {
			if !g.ranks[i].required[t] || !g.ranks[j].required[t] {
				continue
			}
			ij, ji := g.ranks[i].deaf[j].at(t), g.ranks[j].deaf[i].at(t)
			one := ij && (silent[j] || !up[j]) || ji && (silent[i] || !up[i])
			if ij && ji || one && !g.carried[[2]int{i, j}].at(t) {
				v.down[t][[2]int{i, j}] = true
				well = false
			}
		}
	}
	if well && !g.written[t] {
		v.billable[t] = true
		return
	}
	var missing, quiet []int
	for k, r := range g.ranks {
		if r.required[t] && !up[k] {
			missing = append(missing, k)
		}
		for pair := range v.down[t] {
			if (pair[0] == k || pair[1] == k) && (silent[k] || r.relaySilent[t]) && !slices.Contains(quiet, k) {
				quiet = append(quiet, k)
			}
		}
	}
	switch {
	case g.gap[t]:
		v.class[t] = "platform"
	case len(missing) > 0:
		v.class[t], v.culprits[t] = "proof", missing
	case len(quiet) > 0:
		v.class[t], v.culprits[t] = "silence", quiet
	default:
		v.class[t] = "undecided"
	}
}

// at is false for a set that is not there.
func (b bits) at(t int) bool { return b != nil && b[t] }
