package admin

import (
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// consolePages are the first page of the console.
type consolePages struct {
	*page.Site
	trial *statement.Trial
}

// admin shows what waits for staff, and where the platform's money is.
func (s *consolePages) admin(v *page.Visit) error {
	ctx := v.R.Context()
	a, err := s.Statements.Wants(ctx, v.Who)
	if err != nil {
		return err
	}
	t, at, err := s.trial.Read(ctx)
	if err != nil {
		return err
	}
	totals, err := s.Statements.PlatformTotals(ctx, v.Who, s.Now())
	if err != nil {
		return err
	}
	r, err := s.Reconciler.Reconciliation(ctx, v.Who)
	if err != nil {
		return err
	}
	today := s.Now().UTC()
	in, paid, err := s.Statements.Flow(ctx, today.AddDate(0, 0, -31))
	if err != nil {
		return err
	}
	out := Overview{
		Totals:   totals,
		Currency: s.Currency,
		Balanced: t.Balanced(),
		Summed:   at.UTC().Format("15:04:05"),
		In:       view.NewColumns("Paid in by day", s.Currency, today, flowDays(in)),
		Out:      view.NewColumns("Sent to operators by day", s.Currency, today, flowDays(paid)),
	}
	amount := func(n money.Nano, none string) string {
		if n == 0 {
			return none
		}
		return view.Cents(n) + " " + s.Currency
	}
	sending, err := s.Outbox.Sending(ctx, v.Who)
	if err != nil {
		return err
	}
	listed, err := s.Hosts.Contested(ctx, v.Who)
	if err != nil {
		return err
	}
	undecided := int64(len(groupContests(listed, false, s.Now())))
	paused := int64(0)
	if sending.Paused {
		paused = 1
	}
	out.Queues = []Queue{
		{
			N:    int64(len(t.Problems)),
			What: "ledger problems",
			Hint: "the ledger's sums do not balance",
			Href: "/admin/books",
			Tone: "bad",
		},
		{
			N:    r.Suspense + int64(len(r.Unproven)),
			What: "unmatched at Stripe",
			Hint: "in suspense, or without a balance transaction at Stripe",
			Href: "/admin/books#stripe",
			Tone: "bad",
		},
		{
			N:    a.Frozen,
			What: "frozen leases",
			Hint: "conflicting usage reports from one host",
			Href: "/admin/books#frozen",
			Tone: "bad",
		},
		{
			N:    a.PayoutFailures,
			What: "failed payouts",
			Hint: "operators whose last payout failed",
			Href: "/admin/payouts",
			Tone: "bad",
		},
		{
			N:    a.Reviews,
			What: "reviews to decide on",
			Hint: amount(a.InReview, "linked renters and operators"),
			Href: "/admin/reviews",
			Tone: "warn",
		},
		{
			N:    undecided,
			What: "contested GPUs",
			Hint: "several operators list them: decide whose they are",
			Href: "/admin/contests",
			Tone: "warn",
		},
		{
			N:    a.Disputes,
			What: "open disputes",
			Hint: amount(a.Disputed, "payments that banks take back"),
			Href: "/admin/orgs?disputed=1",
			Tone: "warn",
		},
		{
			N:    a.InvoicesUnpaid,
			What: "unpaid invoices",
			Hint: "no card pays them: collect them or write them off",
			Href: "/admin/books#postpaid",
			Tone: "warn",
		},
		{
			N:    a.PayoutsStopped,
			What: "operators stopped",
			Hint: "until staff resume payouts",
			Href: "/admin/payouts",
			Tone: "warn",
		},
		{
			N:    paused,
			What: "paused sending",
			Hint: "no money moves at Stripe until you resume it",
			Href: "/admin/payouts#sending",
			Tone: "bad",
		},
		{
			N:    a.OutboxUnknown,
			What: "Stripe requests pending",
			Hint: "their outcome is unknown; they are retried automatically",
			Href: "/admin/books#stripe",
			Tone: "warn",
		},
	}
	out.Assets, out.Claims = holdings(t.Totals, s.Currency)
	return s.Render(v, OverviewPage(v.Page("Admin", "admin"), out))
}

func flowDays(days []statement.DayMoney) []view.DayAmount {
	out := make([]view.DayAmount, 0, len(days))
	for _, d := range days {
		at, err := time.Parse(time.DateOnly, d.Day)
		if err == nil { // the database wrote it
			out = append(out, view.DayAmount{Day: at, Amount: d.Amount})
		}
	}
	return out
}

// partWords names and colours the parts of the holdings.
var partWords = map[statement.Part]Holding{
	statement.AtStripe:       {Name: "At Stripe", Class: "k0"},
	statement.InBank:         {Name: "In the bank", Class: "k1"},
	statement.Receivable:     {Name: "Used, to be paid afterwards", Class: "k2"},
	statement.RentersFree:    {Name: "Renters, free to spend", Class: "k0"},
	statement.RentersHeld:    {Name: "Renters, held for clusters", Class: "k1"},
	statement.OperatorsYoung: {Name: "Operators, not payable yet", Class: "k3"},
	statement.OperatorsDue:   {Name: "Operators, payable", Class: "k2"},
	statement.OperatorsBond:  {Name: "Operators, kept as bonds", Class: "k9"},
	statement.OnItsWay:       {Name: "On its way to operators and renters", Class: "k4"},
	statement.DisputedOrKept: {Name: "Disputed, or withheld by a review", Class: "k5"},
	statement.InSuspense:     {Name: "In suspense", Class: "k6"},
	statement.TaxOffices:     {Name: "Tax offices", Class: "k8"},
	statement.Platform:       {Name: "The platform, after its costs", Class: "k7"},
}

// holdings computes two bars, the platform's assets and the claims on them, on one scale. What is below zero on one
// side is drawn on the other as what is missing there: claims that exceed the assets are the platform's loss.
func holdings(totals []ledger.Total, currency string) (assets, claims Holdings) {
	have, whose := statement.Holdings(totals, currency)
	bar := func(name string, parts []statement.Holding) Holdings {
		h := Holdings{Name: name}
		for _, x := range parts {
			part := partWords[x.Part]
			part.Amount = x.Amount
			h.Parts = append(h.Parts, part)
		}
		h.Parts = slices.DeleteFunc(h.Parts, func(x Holding) bool { return x.Amount.Sign() == 0 })
		return h
	}
	assets, claims = bar("Held", have), bar("Owed", whose)
	assets.Short, claims.Short = claims.below("Not covered: the platform's loss"), assets.below("Owed to the platform")
	scale := assets.length()
	if n := claims.length(); n.Cmp(scale) > 0 {
		scale = n
	}
	assets.lay(scale)
	claims.lay(scale)
	return assets, claims
}

// below returns what a bar has below zero, for the other bar; nil if there is nothing.
func (h Holdings) below(name string) *Holding {
	sum := new(big.Int)
	for _, x := range h.Parts {
		if x.Amount.Sign() < 0 {
			sum.Sub(sum, x.Amount)
		}
	}
	if sum.Sign() == 0 {
		return nil
	}
	return &Holding{Name: name, Amount: sum}
}

// length is what a bar shows: all that is above zero, and what is missing.
func (h Holdings) length() *big.Int {
	sum := new(big.Int)
	for _, x := range h.Parts {
		if x.Amount.Sign() > 0 {
			sum.Add(sum, x.Amount)
		}
	}
	if h.Short != nil {
		sum.Add(sum, h.Short.Amount)
	}
	return sum
}

// lay puts the parts of a bar one after another; 1000 is the length of scale.
func (h Holdings) lay(scale *big.Int) {
	at := 0.0
	put := func(x *Holding) {
		wide := 0.0
		if x.Amount.Sign() > 0 {
			wide, _ = new(big.Float).Quo(new(big.Float).SetInt(new(big.Int).Mul(x.Amount, big.NewInt(1000))),
				new(big.Float).SetInt(scale)).Float64()
		}
		x.X, x.Width = fmt.Sprintf("%.2f", at), fmt.Sprintf("%.2f", wide)
		at += wide
	}
	for i := range h.Parts {
		put(&h.Parts[i])
	}
	if h.Short != nil {
		put(h.Short)
	}
}

// inForm turns a NotFound fault about an object that a form names into a Conflict, which the form shows.
func inForm(err error) error {
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.Conflict, "%s", fault.From(err).Message)
	}
	return err
}
