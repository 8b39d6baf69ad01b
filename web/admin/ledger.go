package admin

import (
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

const (
	entriesPerPage = 25
	belowZeroShown = 50
)

// ledgerPages are the platform's ledger: totals, and its entries.
type ledgerPages struct {
	*page.Site
	postpaid *postpaidPages
}

// ledger shows the platform's ledger: whether it balances, how it compares with Stripe, which accounts are below zero,
// and which leases are frozen.
func (s *ledgerPages) ledger(v *page.Visit) error { return s.showLedger(v, UnfreezeForm{}) }

func (s *ledgerPages) showLedger(v *page.Visit, form UnfreezeForm) error {
	ctx := v.R.Context()
	t, err := s.Statements.TrialBalance(ctx, v.Who)
	if err != nil {
		return err
	}
	r, err := s.Reconciler.Reconciliation(ctx, v.Who)
	if err != nil {
		return err
	}
	below, err := s.Statements.BelowZero(ctx, v.Who, belowZeroShown)
	if err != nil {
		return err
	}
	running, err := s.Statements.Running(ctx, v.Who)
	if err != nil {
		return err
	}
	frozen, err := s.frozen(v)
	if err != nil {
		return err
	}
	out := Ledger{
		Frozen:   frozen,
		Unfreeze: form,
		Accrued:  running.Accrued,
		Burn:     running.Burn,
		Debits:   t.Debits,
		Credits:  t.Credits,
		Problems: t.Problems,
		Stripe:   s.stripeState(r),
	}
	out.Unfreeze.Once = page.NewOnce()
	if v.R.Method == http.MethodGet && v.R.FormValue("unfrozen") != "" {
		out.Done = "The lease is unfrozen. The host's operator was notified of the reason."
	}
	for _, x := range t.Totals {
		out.Totals = append(out.Totals, Total{Kind: string(x.Kind), Currency: x.Currency, Amount: x.Amount})
		if x.Kind == ledger.KindSuspense && x.Currency == r.Currency {
			out.Stripe.Suspense = x.Amount
		}
	}
	for _, x := range below {
		out.Below = append(out.Below, BelowZero{
			Kind:     string(x.Kind),
			Org:      x.Org.String(),
			Currency: x.Currency,
			Balance:  x.Balance,
		})
	}
	if out.Debtors, err = s.postpaid.debtors(ctx, v.Who); err != nil {
		return err
	}
	return s.Render(v, LedgerPage(v.Page("Ledger", "admin"), out))
}

func (s *ledgerPages) stripeState(r client.Reconciliation) StripeState {
	out := StripeState{
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
		out.Open = append(out.Open, OpenChange{
			Time:   view.Clock(c.At, s.Now()),
			What:   c.Type + ", " + c.State,
			Name:   strings.TrimSpace(c.ID + " " + c.Source),
			Amount: c.Amount,
		})
	}
	for _, u := range r.Unproven {
		out.Unproven = append(out.Unproven, OpenChange{
			Time:   view.Clock(u.At, s.Now()),
			What:   u.Kind,
			Name:   u.Key,
			Search: u.Key,
			Amount: u.Amount,
		})
	}
	return out
}

// ledgerEntries shows the ledger entries that match the search.
func (s *ledgerPages) ledgerEntries(v *page.Visit) error {
	return s.showEntries(v, CompensateForm{Charge: v.R.FormValue("charge")})
}

func (s *ledgerPages) showEntries(v *page.Visit, form CompensateForm) error {
	out := Entries{Query: strings.TrimSpace(v.R.FormValue("q")), Form: form}
	out.Form.Once = page.NewOnce()
	if v.R.Method == http.MethodGet && v.R.FormValue("done") != "" {
		out.Done = "The charge was refunded. Renter and operator were notified of the reason."
	}
	var before id.LedgerTx
	if a := v.R.FormValue("after"); a != "" {
		var err error
		if before, err = id.Parse[id.LedgerTx](a); err != nil {
			return fault.New(fault.NotFound, "page not found")
		}
	}
	if out.Query != "" {
		list, err := s.Statements.SearchLedger(v.R.Context(), v.Who, out.Query, before, entriesPerPage+1)
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
	return s.Render(v, EntriesPage(v.Page("Ledger entries", "admin"), out))
}

func viewEntry(b ledger.Booked) Entry {
	x := Entry{
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
		x.Transfers = append(x.Transfers, Transfer{
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

// compensate refunds a charge, or part of it, with a reason.
func (s *ledgerPages) compensate(v *page.Visit) error {
	form := CompensateForm{
		Charge: strings.TrimSpace(v.R.FormValue("charge")),
		Amount: strings.TrimSpace(v.R.FormValue("amount")),
		Reason: strings.TrimSpace(v.R.FormValue("reason")),
	}
	charge, amount, err := compensation(form)
	var booked ledger.Entry
	if err == nil {
		booked, _, err = s.Payments.Corrections.Compensate(v.R.Context(), v.Who, charge, amount, form.Reason,
			v.Once("charge", "amount", "reason"))
	}
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) { // of the charge, not of the page
		err = fault.InvalidField("charge", "%s", fault.From(err).Message)
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showEntries(v, form)
		})
	}
	return page.Back(v, "/admin/books/entries?"+url.Values{"q": {booked.Key}, "done": {"1"}}.Encode())
}

// compensation parses the form; amount 0 means all that is left of the charge.
func compensation(f CompensateForm) (charge id.LedgerTx, amount money.Nano, err error) {
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

// frozen returns the leases whose money is frozen.
func (s *ledgerPages) frozen(v *page.Visit) ([]Frozen, error) {
	list, err := s.Leases.Frozen(v.R.Context(), v.Who)
	if err != nil {
		return nil, err
	}
	out := make([]Frozen, len(list))
	for i, f := range list {
		out[i] = Frozen{
			Lease:    f.Lease.String(),
			Cluster:  f.Cluster.String(),
			Host:     f.Host.String(),
			HostName: f.HostName,
			Operator: f.Operator.String(),
			Currency: f.Currency,
			Posted:   f.Posted,
			Waiting:  f.Waiting,
		}
		for _, c := range f.Conflicts {
			out[i].Conflicts = append(out[i].Conflicts, fmt.Sprintf("Segment %d of start %d: %s stands; %s came %s UTC.",
				c.Seq, c.Epoch, between(c.From, c.To), between(c.OtherFrom, c.OtherTo), view.Clock(c.At, s.Now())))
		}
	}
	return out, nil
}

func between(from, to time.Time) string {
	return from.UTC().Format("15:04:05.000") + "–" + to.UTC().Format("15:04:05.000")
}

// unfreeze releases the money of a frozen lease, with a reason.
func (s *ledgerPages) unfreeze(v *page.Visit) error {
	form := UnfreezeForm{Lease: v.R.FormValue("lease"), Reason: strings.TrimSpace(v.R.FormValue("reason"))}
	lease, err := id.Parse[id.Lease](form.Lease)
	if err != nil {
		err = fault.InvalidField("lease", "is the id of a lease")
	} else {
		_, _, err = s.Leases.Unfreeze(v.R.Context(), v.Who, lease, form.Reason, v.Once("lease", "reason"))
	}
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) { // of the lease, not of the page
		err = fault.InvalidField("lease", "%s", fault.From(err).Message)
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showLedger(v, form)
		})
	}
	return page.Back(v, "/admin/books?unfrozen=1")
}
