package metering

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"sort"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// How far ahead a cluster is authorised, in ms. While half a step is left nothing is done, so a well funded cluster
// costs one ledger entry every half hour; a poor one takes smaller steps, so that it does not lock up money that its
// owner may want to use otherwise.
const (
	fullStepMS  = 60 * 60_000
	shortStepMS = 10 * 60_000
	minStartMS  = 60_000
)

// AuthoriseRequest requests that a cluster may run for up to an hour from now.
type AuthoriseRequest struct {
	Cluster  id.Cluster
	Org      id.Org // whose wallet
	Project  string // "" = none
	Currency string
	Budget   *money.Nano // of the cluster, over its life; nil = none
	NotAfter *time.Time  // latest end, such as the start plus max_duration; nil = none
	Since    *time.Time  // when the cluster began to run, for the longest run its budgets allow; nil = it would now
}

// Limit is why an authorisation ends earlier than it could.
type Limit string

const (
	LimitNone     Limit = ""
	LimitFunds    Limit = "funds"
	LimitBudget   Limit = "budget"     // the cluster's own
	LimitOrg      Limit = "org_budget" // its project's or org's
	LimitDuration Limit = "max_duration"
)

// Authorisation is until when a cluster may run, backed by money that is held.
type Authorisation struct {
	RunUntil time.Time
	Held     money.Nano // in the cluster's hold now
	// Reach is how far money, budgets and duration go now, at most an hour ahead: beyond RunUntil while only a part of it
	// is held.
	Reach time.Time
	// Limit is what keeps RunUntil from going further, for warnings and for the reason of the end.
	Limit Limit
	spent bool // a budget of its project or org keeps RunUntil from ever being extended
}

// Authorise moves money from the wallet into the cluster's hold, so that every millisecond the cluster could still be
// billed up to RunUntil is covered, and stamps RunUntil on its live leases. RunUntil is at most an hour ahead and
// never goes back; it stays as it is while half a step of it is left, so calling it often is cheap. When money, budget
// or duration are short it goes as far as they reach.
//
// The first time at least 60 s must be affordable: else fault.InsufficientFunds, fault.Invalid for the cluster's
// budget, or fault.QuotaExceeded for that of its project or org, which may also find it too dear. The caller holds the
// cluster's lock.
func Authorise(ctx context.Context, tx *db.Tx, r AuthoriseRequest) (Authorisation, error) {
	leases, err := lockCluster(ctx, tx, r.Cluster)
	if err != nil {
		return Authorisation{}, err
	}
	if !slices.ContainsFunc(leases, func(l *lease) bool { return !l.ended() }) {
		return Authorisation{}, fault.New(fault.Conflict, "the cluster has ended")
	}
	out, from, err := authorise(ctx, tx, r, leases)
	if err != nil || from == 0 {
		return out, err
	}
	if err := tx.Q.SetRunUntil(ctx, &out.RunUntil, from, r.Cluster); err != nil {
		return Authorisation{}, fmt.Errorf("set run_until: %w", err)
	}
	return out, nil
}

// authorise moves the money. from is the moment, unix ms, from which the held money covers when RunUntil is to be
// stamped on the leases; 0: it stays as it is.
func authorise(ctx context.Context, tx *db.Tx, r AuthoriseRequest,
	leases []*lease) (out Authorisation, from int64, err error) {
	var now time.Time
	b := &pgx.Batch{}
	k, err := QueueBegin(b, tx, r, nil)
	if err != nil {
		return out, 0, err
	}
	db.ReadNow(b, &now)
	if err := tx.Send(ctx, b); err != nil {
		return out, 0, fmt.Errorf("money of %s: %w", r.Cluster, err)
	}
	k.leases = leases
	if out, err = k.Decide(r.NotAfter, now); err != nil {
		return out, 0, err
	}
	if out.spent {
		if err := k.limits.Exhausted(ctx, tx, r.Cluster); err != nil {
			return out, 0, err
		}
	}
	if err := r.count(ctx, tx, leases, k.limits, out, k.missing); err != nil {
		return out, 0, err
	}
	if k.missing > 0 {
		_, err = k.locked.Post(ctx, r.entry(out, k.missing))
	}
	return out, k.from, err
}

// count counts what goes into the hold against the budgets, and writes a notice when little of the cluster's own is
// left.
func (r AuthoriseRequest) count(ctx context.Context, tx *db.Tx, leases []*lease, limits budget.Watch, a Authorisation,
	missing money.Nano) error {
	if missing == 0 {
		return nil
	}
	b := &pgx.Batch{}
	if err := limits.QueueCommit(b, missing); err != nil {
		return err
	}
	if err := tx.Send(ctx, b); err != nil {
		return fmt.Errorf("count %s against budgets: %w", missing, err)
	}
	posted := postedOf(leases)
	if r.Budget == nil || posted == 0 && a.Held == missing {
		return nil // the first hold, of up to an hour: the budget was set just now, and nothing of it is spent
	}
	return budget.Notify(ctx, tx, budget.Notice(r.Org, r.Cluster.String(), "the budget of this cluster", "spent or held",
		posted+a.Held, *r.Budget, r.Currency))
}

// accounts returns the cluster's hold and the wallet it is filled from.
func (r AuthoriseRequest) accounts() []ledger.Account {
	return []ledger.Account{ledger.Hold(r.Org, r.Cluster, r.Currency), ledger.Wallet(r.Org, r.Currency)}
}

// entry moves what is missing from the wallet into the hold.
func (r AuthoriseRequest) entry(a Authorisation, missing money.Nano) ledger.Entry {
	at := r.accounts()
	return ledger.Entry{
		Kind: "authorise", Key: "authorise:" + id.New[id.LedgerTx]().String(), Ref: r.Cluster.String(),
		Memo:      "held until " + a.RunUntil.Format("2006-01-02 15:04:05"),
		Transfers: []ledger.Transfer{{Debit: at[1], Credit: at[0], Amount: missing}},
	}
}

// latest returns the earliest of the ends that max_duration, the cluster's and its budgets', sets; nil: none.
func (r AuthoriseRequest) latest(now int64, limits budget.Watch) *time.Time {
	end := r.NotAfter
	if d := limits.MaxDuration(); d != nil {
		since := time.UnixMilli(now).UTC()
		if r.Since != nil {
			since = *r.Since
		}
		if t := since.Add(time.Duration(*d) * time.Second); end == nil || t.Before(*end) {
			end = &t
		}
	}
	return end
}

// rateAt returns what the live leases cost per hour.
func rateAt(leases []*lease, now int64) (rate money.Micro) {
	for _, l := range leases {
		if l.ended() {
			continue
		}
		var at money.Micro
		for _, p := range l.terms.Prices {
			if p.FromMS <= now {
				at = p.Rate
			}
		}
		rate += at
	}
	return rate
}

// tooPoor returns why a first authorisation is refused. owed is for storage, which is paid before anything is held.
func tooPoor(leases []*lease, now int64, short Limit, available money.Nano, limits budget.Watch,
	owed money.Nano) error {
	cost := need(leases, now, now+minStartMS)
	switch short {
	case LimitBudget:
		return fault.InvalidField("budget", "must cover at least 60 seconds, which cost %s", cost.Plain())
	case LimitOrg:
		return limits.Refusal(cost)
	}
	if owed > 0 {
		return fault.New(fault.InsufficientFunds, "60 seconds of this cluster cost %s; %s is available beyond the %s that "+
			"you owe for storage", cost.Plain(), available.Plain(), owed.Plain())
	}
	return fault.New(fault.InsufficientFunds, "60 seconds of this cluster cost %s; %s is available", cost.Plain(),
		available.Plain())
}

// authorised returns until when all live leases may run, 0 when one may not yet.
func authorised(leases []*lease) int64 {
	until := int64(forever)
	for _, l := range leases {
		if !l.ended() {
			until = min(until, l.runUntil())
		}
	}
	if until == forever {
		return 0
	}
	return until
}

// promised returns the latest moment until which any live lease may run already: a lease that joins the others is
// authorised as far at once, because run_until never goes back.
func promised(leases []*lease) (until int64) {
	for _, l := range leases {
		if !l.ended() {
			until = max(until, l.runUntil())
		}
	}
	return until
}

// step returns until when to authorise next, all in unix ms: present is what holds now (0: nothing yet), reach what
// money allows, target what is wanted. It returns present if there is nothing to do.
func step(now, present, reach, target int64) int64 {
	left, size := present-now, int64(fullStepMS)
	if reach < target {
		size = shortStepMS
	}
	if left >= size/2 || reach < now {
		return present
	}
	return max(present, min(reach, now+size))
}

// spendable is what may be spent on a cluster.
type spendable struct {
	funds  money.Nano  // hold and wallet, with the wallet's credit
	held   money.Nano  // the hold alone
	budget *money.Nano // of the cluster, over its life; nil = none
	left   *money.Nano // of its project's and org's budgets, beyond what is held; nil = none
}

// short returns which part of the spendable money does not cover total, of which posted is posted.
func (p spendable) short(total, posted money.Nano) Limit {
	switch {
	case p.budget != nil && total > *p.budget:
		return LimitBudget
	case p.left != nil && total-posted > p.held+*p.left:
		return LimitOrg
	case total-posted > p.funds:
		return LimitFunds
	}
	return LimitNone
}

// affordable returns the latest moment in [now, target] up to which p covers everything that could be billed, and which
// part of p is short. It is before now if not even the past is covered.
func affordable(leases []*lease, now, target int64, p spendable) (until int64, short Limit) {
	limit := func(t int64) Limit { return p.short(worst(leases, now, t)) }
	if target < now || limit(target) == LimitNone {
		return target, LimitNone
	}
	n := sort.Search(int(target-now), func(i int) bool { return limit(now+int64(i)) != LimitNone })
	return now + int64(n) - 1, limit(now + int64(n))
}

// need returns what must be in the hold so that every millisecond up to until is covered.
func need(leases []*lease, now, until int64) money.Nano {
	total, posted := worst(leases, now, until)
	return total - posted
}

// worst returns the most the leases can cost in all when every millisecond is proven that still may be, live ones
// running until the given moment, and how much of that is posted. A window that is not open yet opens at from or later.
func worst(leases []*lease, from, until int64) (total, posted money.Nano) {
	for _, l := range leases {
		posted += l.meter.Posted
		if l.settled() {
			total += l.meter.Posted
			continue
		}
		num := new(big.Int).Add(l.meter.Numerator, numerator(l.possible(from, until), l.terms.Prices))
		total += money.Posted(num.Add(num, big.NewInt(money.NumeratorPerNano-1)))
	}
	return total, posted
}

// possible returns the time above the watermark that may still be billed.
func (l *lease) possible(from, until int64) Set {
	var in []Interval
	open := false
	for _, w := range l.windows {
		i := w.Billable()
		switch {
		case w.pending():
			i.End = w.LimitMS
		case w.running():
			open = true
			i.End = max(i.End, until)
		}
		in = append(in, i)
	}
	if !open && !l.ended() {
		in = append(in, Interval{Start: from, End: until})
	}
	return SetOf(in...).Clip(l.terms.Life).Clip(Interval{Start: l.meter.SettledThrough, End: forever})
}
