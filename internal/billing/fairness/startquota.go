package fairness

import (
	"slices"
	"time"

	"github.com/musterhq/muster/internal/money"
)

const (
	// StartReserve is how long a start that is under way counts as holding its GPUs at least, so that starts side by side
	// are bounded like starts one after the other.
	StartReserve = 120 * time.Second
	// StartExcuse is how long an operator's failures excuse no further start of the same renter, except for the operator's
	// own GPUs: a renter could arrange them with it.
	StartExcuse = 24 * time.Hour

	// pullGrace and pullRate are how long a start may take for which only the size of its image counts.
	pullGrace = 180 * time.Second
	pullRate  = 25_000_000 // bytes per second
)

// StartRules limit for how long an organisation and its circle may hold GPUs without paying for them: from the claim
// until every rank runs, or until the start has failed, and with quotes. Without a Window they limit nothing.
type StartRules struct {
	Window  time.Duration // how long a start counts after it ended
	Free    int64         // GPU-seconds within the window that an organisation may hold although it has paid for nothing
	Reserve time.Duration // the least time for which a start under way counts; see StartReserve
	// MarketPPM is the part of all GPUs of a model that starts under way and quotes may hold together that no payment
	// covers, and MarketLeast how many GPUs they may hold if that is less, but never more than half. At 1,000,000 they are
	// not limited.
	MarketPPM   int64
	MarketLeast int64
}

// HeldStart is what starts or quotes that ended at a moment (unix ms) held without paying, and what that time would
// have cost. An open quote counts as if it held its GPUs until it expires.
type HeldStart struct {
	EndedMS, GPUMillis int64
	Value              money.Nano
}

// OpenStart is a start under way.
type OpenStart struct {
	SinceMS int64 // unix ms
	GPUs    int
	Rate    money.Micro // of the cluster, per hour
}

// StartFacts are the starts of an organisation or a circle and what it paid: within the window, or in the mean of a
// longer time, the greater of both.
type StartFacts struct {
	Held []HeldStart
	Open []OpenStart
	Paid money.Nano
}

// StartVerdict is whether an organisation may start another cluster.
type StartVerdict struct {
	OK bool
	// Covered: what its starts held would have cost less than what it paid, the new one included.
	Covered bool
	// GPUMillis and Value are what its starts hold and held.
	GPUMillis int64
	Value     money.Nano
	// FreeMS (unix ms) is when it may start again if its open starts run at once and it pays for nothing until then.
	FreeMS int64
}

// Paid returns what an organisation paid that counts, of what it paid within the window and in seven days: the greater
// of the first and the mean of windows.
func (r StartRules) Paid(window, week money.Nano) money.Nano {
	const days = 7 * 24 * time.Hour
	return max(window, money.Nano(float64(week)*r.Window.Seconds()/days.Seconds()))
}

// Judge decides whether an organisation may start a cluster with the given hourly rate at nowMS (unix ms). It may if
// its starts held fewer than Free GPU-seconds, so a first start is not refused, or if their time is covered by what it
// paid.
func (r StartRules) Judge(f StartFacts, rate money.Micro, nowMS int64) StartVerdict {
	v := StartVerdict{OK: true, Covered: true, FreeMS: nowMS}
	if r.Window == 0 {
		return v
	}
	held := slices.SortedFunc(slices.Values(f.Held), func(a, b HeldStart) int { return int(a.EndedMS - b.EndedMS) })
	for len(held) > 0 && held[0].EndedMS <= nowMS-r.Window.Milliseconds() {
		held = held[1:]
	}
	for _, s := range held {
		v.GPUMillis, v.Value = v.GPUMillis+s.GPUMillis, v.Value+s.Value
	}
	for _, s := range f.Open {
		ms := min(r.Window.Milliseconds(), max(r.Reserve.Milliseconds(), nowMS-s.SinceMS))
		v.GPUMillis, v.Value = v.GPUMillis+int64(s.GPUs)*ms, v.Value+StartValue(s.Rate, ms)
	}
	v.Covered = v.Value+StartValue(rate, r.Reserve.Milliseconds()) <= f.Paid
	within := func(gpuMS int64, value money.Nano) bool { return gpuMS < r.Free*1000 || value <= f.Paid }
	v.OK = v.Covered || within(v.GPUMillis, v.Value)
	for ms, value := v.GPUMillis, v.Value; !within(ms, value); held = held[1:] {
		if len(held) == 0 {
			v.FreeMS = nowMS + r.Window.Milliseconds()
			break
		}
		ms, value = ms-held[0].GPUMillis, value-held[0].Value
		v.FreeMS = held[0].EndedMS + r.Window.Milliseconds()
	}
	return v
}

// JudgeInCircle is Judge for an organisation whose quota is that of its circle: what the circle held and paid decides,
// itself included. But what an organisation itself has paid covers its own starts, whatever others of the circle hold:
// an organisation that invites people takes nothing from what they pay for.
func (r StartRules) JudgeInCircle(own, circle StartFacts, rate money.Micro, nowMS int64) StartVerdict {
	v := r.Judge(circle, rate, nowMS)
	if !v.Covered && r.Judge(own, rate, nowMS).Covered {
		v.OK, v.Covered, v.FreeMS = true, true, nowMS
	}
	return v
}

// Room returns how many GPUs of a model may be claimed for a start or a quote that no payment covers. total is the
// number of GPUs of the model that the market has, held is how many such starts and quotes hold now, of all
// organisations. Together they never hold more than half of a model. Before an operator has earned anything with a
// model, its total is 0, and only MarketLeast limits.
func (r StartRules) Room(total, held int64) int64 {
	if r.Window == 0 || r.MarketPPM >= 1_000_000 {
		return 1 << 40
	}
	most := max(r.MarketLeast, total*r.MarketPPM/1_000_000)
	if total > 0 {
		most = min(most, (total+1)/2)
	}
	return max(0, most-held)
}

// StartValue is what a time costs at an hourly rate, rounded down.
func StartValue(rate money.Micro, ms int64) money.Nano {
	return money.Nano(int64(rate)/3600*ms + int64(rate)%3600*ms/3600)
}

// StartCounts returns how long a start counts that took ms from the claim. deafMS of it the platform could not receive
// from one of its hosts. imageBytes is the size of its image if only its registry and the hosts had a part in how fast
// it was pulled, 0 otherwise: then a slow host does not count against the renter.
func StartCounts(ms, deafMS, imageBytes int64) int64 {
	ms = max(0, ms-deafMS)
	if imageBytes > 0 {
		ms = min(ms, pullGrace.Milliseconds()+imageBytes/(pullRate/1000))
	}
	return ms
}
