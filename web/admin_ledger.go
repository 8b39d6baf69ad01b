package web

import (
	"math/big"
	"net/http"
	"net/url"
	"strings"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/view"
)

const (
	entriesPerPage = 25
	belowZeroShown = 50
)

// ledger shows the platform's own books: whether they balance, how Stripe stands to them, who is below zero, which
// leases are frozen.
func (s *Web) ledger(v *visit) error { return s.showLedger(v, view.UnfreezeForm{}) }

func (s *Web) showLedger(v *visit, form view.UnfreezeForm) error {
	ctx := v.r.Context()
	t, err := s.Statements.TrialBalance(ctx, v.who)
	if err != nil {
		return err
	}
	r, err := s.Payments.Reconciliation(ctx, v.who)
	if err != nil {
		return err
	}
	below, err := s.Statements.BelowZero(ctx, v.who, belowZeroShown)
	if err != nil {
		return err
	}
	running, err := s.Statements.Running(ctx, v.who)
	if err != nil {
		return err
	}
	frozen, err := s.frozen(v)
	if err != nil {
		return err
	}
	out := view.Books{
		Frozen:   frozen,
		Unfreeze: form,
		Accrued:  running.Accrued,
		Burn:     running.Burn,
		Debits:   t.Debits,
		Credits:  t.Credits,
		Problems: t.Problems,
		Stripe:   s.stripeState(r),
	}
	out.Unfreeze.Once = newOnce()
	if v.r.Method == http.MethodGet && v.r.FormValue("unfrozen") != "" {
		out.Done = "The lease's money moves again. The host's operator is told why."
	}
	for _, x := range t.Totals {
		out.Totals = append(out.Totals, view.BookTotal{Kind: string(x.Kind), Currency: x.Currency, Amount: x.Amount})
		if x.Kind == ledger.KindSuspense && x.Currency == r.Currency {
			out.Stripe.Suspense = x.Amount
		}
	}
	for _, x := range below {
		out.Below = append(out.Below, view.BelowZero{
			Kind:     string(x.Kind),
			Org:      x.Org.String(),
			Currency: x.Currency,
			Balance:  x.Balance,
		})
	}
	if out.Debtors, err = s.debtors(ctx, v.who); err != nil {
		return err
	}
	return s.render(v, view.BooksPage(v.page("Books", "desk"), out))
}

func (s *Web) stripeState(r payment.Reconciliation) view.StripeState {
	out := view.StripeState{
		State:      view.State{Word: "Agrees", Icon: "check", Tone: "ok"},
		Currency:   r.Currency,
		Holds:      r.Stripe,
		Clearing:   r.Clearing,
		Difference: r.Difference,
		Suspense:   new(big.Int),
		Matched:    r.Matched,
		Waiting:    r.Waiting,
		InSuspense: r.Suspense,
	}
	if f := r.Funds; f != nil {
		out.Asked, out.Available, out.Pending, out.Reserved = view.Clock(f.ReadAt, s.Now()), f.Available, f.Pending,
			f.Reserved
		if out.Unread, out.OwnLessBooks, out.Wrong = f.Unread, f.Unbooked, f.Wrong; f.OffSince != nil {
			out.OffSince = view.Clock(*f.OffSince, s.Now())
		}
	}
	switch {
	case out.Wrong, r.Suspense > 0 || len(r.Unproven) > 0:
		out.State = view.State{Word: "Does not agree", Icon: "error", Tone: "bad"}
	case r.Difference != 0 || r.Waiting > 0:
		out.State = view.State{Word: "Being matched", Icon: "info", Tone: "live"}
	}
	for _, c := range r.Open {
		out.Open = append(out.Open, view.OpenChange{
			Time:   view.Clock(c.At, s.Now()),
			What:   c.Type + ", " + c.State,
			Name:   strings.TrimSpace(c.ID + " " + c.Source),
			Amount: c.Amount,
		})
	}
	for _, u := range r.Unproven {
		out.Unproven = append(out.Unproven, view.OpenChange{
			Time:   view.Clock(u.At, s.Now()),
			What:   u.Kind,
			Name:   u.Key,
			Search: u.Key,
			Amount: u.Amount,
		})
	}
	return out
}

// ledgerEntries shows the entries that were searched for.
func (s *Web) ledgerEntries(v *visit) error {
	return s.showEntries(v, view.CompensateForm{Charge: v.r.FormValue("charge")})
}

func (s *Web) showEntries(v *visit, form view.CompensateForm) error {
	out := view.BookEntries{Query: strings.TrimSpace(v.r.FormValue("q")), Form: form}
	out.Form.Once = newOnce()
	if v.r.Method == http.MethodGet && v.r.FormValue("done") != "" {
		out.Done = "The charge was given back. Both sides are told why."
	}
	var before id.LedgerTx
	if a := v.r.FormValue("after"); a != "" {
		var err error
		if before, err = id.Parse[id.LedgerTx](a); err != nil {
			return fault.New(fault.NotFound, "no such page")
		}
	}
	if out.Query != "" {
		list, err := s.Statements.SearchLedger(v.r.Context(), v.who, out.Query, before, entriesPerPage+1)
		if err != nil {
			return err
		}
		if len(list) > entriesPerPage {
			list = list[:entriesPerPage]
			out.Next = "/admin/books/entries?" + url.Values{"q": {out.Query}, "after": {list[len(list)-1].ID.String()}}.Encode()
		}
		for _, b := range list {
			out.Entries = append(out.Entries, viewEntry(b))
		}
	}
	return s.render(v, view.BookEntriesPage(v.page("Entries of the books", "desk"), out))
}

func viewEntry(b ledger.Booked) view.BookEntry {
	x := view.BookEntry{
		ID:       b.ID.String(),
		Time:     b.At,
		Kind:     b.Kind,
		Key:      b.Key,
		Memo:     b.Memo,
		Ref:      b.Ref,
		Corrects: b.Corrects.String(),
		Charge:   b.Kind == "usage",
	}
	for _, t := range b.Transfers {
		x.Transfers = append(x.Transfers, view.BookTransfer{
			Debit:     string(t.Debit.Kind),
			DebitOrg:  t.Debit.Org.String(),
			Credit:    string(t.Credit.Kind),
			CreditOrg: t.Credit.Org.String(),
			Currency:  t.Debit.Currency,
			Amount:    t.Amount,
		})
	}
	return x
}

// compensate gives a charge back, or a part of it, with a reason.
func (s *Web) compensate(v *visit) error {
	form := view.CompensateForm{
		Charge: strings.TrimSpace(v.r.FormValue("charge")),
		Amount: strings.TrimSpace(v.r.FormValue("amount")),
		Reason: strings.TrimSpace(v.r.FormValue("reason")),
	}
	charge, amount, err := compensation(form)
	var booked ledger.Entry
	if err == nil {
		booked, _, err = s.Payments.Compensate(v.r.Context(), v.who, charge, amount, form.Reason,
			v.once("charge", "amount", "reason"))
	}
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) { // of the charge, not of the page
		err = fault.InvalidField("charge", "%s", fault.From(err).Message)
	}
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showEntries(v, form)
		})
	}
	return back(v, "/admin/books/entries?"+url.Values{"q": {booked.Key}, "done": {"1"}}.Encode())
}

// compensation reads what was typed; amount 0 is all that is left of the charge.
func compensation(f view.CompensateForm) (charge id.LedgerTx, amount money.Nano, err error) {
	var bad fault.Fields
	if charge, err = id.Parse[id.LedgerTx](f.Charge); err != nil {
		bad.Add("charge", "is the id of an entry")
	}
	if f.Amount != "" {
		if amount, err = money.ParseNano(f.Amount); err != nil || amount <= 0 {
			bad.Add("amount", "is a decimal above zero")
		}
	}
	if f.Reason == "" {
		bad.Add("reason", "says why: both sides read it")
	}
	return charge, amount, bad.Err()
}
