package metering

import (
	"math"
	"math/big"

	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/money"
)

type (
	// Interval is the time from Start up to but not including End, in unix milliseconds.
	Interval = interval.Span
	// Set is a set of milliseconds.
	Set = interval.Set
)

// SetOf returns the union of any intervals, in any order.
func SetOf(in ...Interval) Set { return interval.Of(in...) }

// forever is later than any moment.
const forever = math.MaxInt64

// Window is one billing window: from OpenedMS to ConfirmedMS while it is open, to ClosedMS once it is closed. What it
// covers only grows.
type Window struct {
	OpenedMS, ConfirmedMS int64
	ClosedMS              int64 // 0 = open
	// DoubtMS is since when a rank of the cluster is in doubt while the window runs: nothing later is confirmed. 0 = none
	// is.
	DoubtMS int64
	// LimitMS makes an open window a pending one: the past time up to LimitMS, of which it is not decided yet whether it
	// counts. None of it is billable. 0 = the window runs now.
	LimitMS int64
}

func (w Window) running() bool { return w.ClosedMS == 0 && w.LimitMS == 0 }
func (w Window) pending() bool { return w.ClosedMS == 0 && w.LimitMS != 0 }

// undecided returns the time of a pending window.
func (w Window) undecided() Interval { return Interval{Start: w.OpenedMS, End: w.LimitMS} }

// Billable returns the time of the window that may be posted now.
func (w Window) Billable() Interval { return Interval{Start: w.OpenedMS, End: w.end()} }

func (w Window) end() int64 {
	if w.ClosedMS != 0 {
		return w.ClosedMS
	}
	return w.ConfirmedMS
}

// Price is what a lease costs per hour from FromMS (unix ms) until the next price.
type Price struct {
	FromMS int64
	Rate   money.Micro
}

// Terms are a lease's frozen terms.
type Terms struct {
	// Life is when the lease exists; no other time of it is billed. End is forever while it lives.
	Life   Interval
	Prices []Price // by FromMS; the first holds from the beginning of time
	// SharePPM is the host's part of every charge, in millionths.
	SharePPM int64
}

// Meter is what one lease has proven and been charged. Every millisecond below SettledThrough has been decided and is
// in BilledMS and Numerator if it was billed; Proven lies above.
type Meter struct {
	SettledThrough int64
	Proven         Set
	BilledMS       int64    // below SettledThrough
	Numerator      *big.Int // Σ rate × ms below SettledThrough, micro-units·ms per hour; never nil

	Posted         money.Nano // charged to the renter so far
	PostedBilledMS int64      // the time behind Posted
	HostPosted     money.Nano // the host's part of Posted
}

// Posting is what a charge adds: Renter = Host + Fee exactly.
type Posting struct {
	Renter, Host, Fee money.Nano
	BilledMS          int64
}

// Charge adds proven time to a meter and returns what is to be posted now.
//
// What is billed is exactly (∪ proven) ∩ windows ∩ life. The renter's total is floor(Σ rate × ms / 3600) nano-units,
// cumulative, and the host's is floor(total × ppm / 1e6), cumulative: so no order, batching, repetition or overlap of
// the same proven time can change what is charged in the end. Only windows that end after SettledThrough matter: the
// caller may leave out others.
func Charge(m Meter, fresh []Interval, windows []Window, t Terms) (Meter, Posting) {
	due, horizon := billable(windows, t.Life)
	above := Interval{Start: m.SettledThrough, End: forever}
	proven := m.Proven.Union(SetOf(fresh...)).Clip(above)

	// The watermark rises to the first billable millisecond that is not proven, or as far as windows reach: a window that
	// opens later starts no earlier. It does not rise into a pending window, of which a part may become billable, nor past
	// what is confirmed of the open one: a tail lies beyond that.
	mark := horizon
	for _, w := range windows {
		if w.running() {
			mark = min(mark, w.ConfirmedMS)
		}
		if w.pending() && w.undecided().And(t.Life).Len() > 0 {
			mark = min(mark, w.OpenedMS)
		}
	}
	mark = max(m.SettledThrough, mark)
	if missing := due.Clip(above).Minus(proven); len(missing) > 0 {
		mark = min(mark, missing[0].Start)
	}
	below := due.Intersect(proven).Clip(Interval{Start: m.SettledThrough, End: mark})
	m.SettledThrough = mark
	m.BilledMS += below.Len()
	m.Numerator = new(big.Int).Add(m.Numerator, numerator(below, t.Prices))
	m.Proven = proven.Clip(Interval{Start: mark, End: forever})

	live := due.Intersect(m.Proven)
	total := money.Posted(new(big.Int).Add(m.Numerator, numerator(live, t.Prices)))
	host := money.Share(total, t.SharePPM)
	p := Posting{
		Renter:   total - m.Posted,
		Host:     host - m.HostPosted,
		BilledMS: m.BilledMS + live.Len() - m.PostedBilledMS,
	}
	p.Fee = p.Renter - p.Host
	m.Posted, m.HostPosted, m.PostedBilledMS = total, host, m.PostedBilledMS+p.BilledMS
	return m, p
}

// billable returns the time of the windows within life, and how far the windows reach at all.
func billable(windows []Window, life Interval) (due Set, horizon int64) {
	in := make([]Interval, len(windows))
	for i, w := range windows {
		in[i] = w.Billable().And(life)
		horizon = max(horizon, w.end())
	}
	return SetOf(in...), horizon
}

// numerator returns Σ rate × ms over the set, each part at the price of its time.
func numerator(s Set, prices []Price) *big.Int {
	sum := new(big.Int)
	for k, p := range prices {
		ms := s.Clip(span(prices, k)).Len()
		sum.Add(sum, new(big.Int).Mul(big.NewInt(int64(p.Rate)), big.NewInt(ms)))
	}
	return sum
}

// span returns when price k holds.
func span(prices []Price, k int) Interval {
	i := Interval{Start: prices[k].FromMS, End: forever}
	if k == 0 {
		i.Start = math.MinInt64
	}
	if k+1 < len(prices) {
		i.End = prices[k+1].FromMS
	}
	return i
}
