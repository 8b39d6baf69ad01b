package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// ledgerAPI answers the routes of the ledger: totals, reports, journal, proposals, search, corrections, frozen money,
// taxes.
type ledgerAPI struct {
	statements *statement.Statements
	payments   *payment.Payments
	leases     *metering.Leases
}

func (a ledgerAPI) trialBalance(ctx context.Context, p account.Principal, _ *struct{}) (client.TrialBalance, error) {
	t, err := a.statements.TrialBalance(ctx, p)
	if err != nil {
		return client.TrialBalance{}, err
	}
	out := client.TrialBalance{
		Balanced: t.Balanced(),
		Debits:   t.Debits.String(),
		Credits:  t.Credits.String(),
		Accounts: []client.KindTotal{},
		Problems: append([]string{}, t.Problems...),
	}
	for _, x := range t.Totals {
		out.Accounts = append(out.Accounts, client.KindTotal{
			Kind:     string(x.Kind),
			Currency: x.Currency,
			Nano:     x.Amount.String(),
		})
	}
	return out, nil
}

func bookEntry(e ledger.Entry) client.LedgerEntry {
	out := client.LedgerEntry{
		Kind:      e.Kind,
		Key:       e.Key,
		Memo:      e.Memo,
		Ref:       e.Ref,
		Corrects:  e.Corrects.String(),
		Transfers: []client.LedgerTransfer{},
	}
	for _, t := range e.Transfers {
		out.Transfers = append(out.Transfers, client.LedgerTransfer{
			Debit:     string(t.Debit.Kind),
			DebitOrg:  t.Debit.Org.String(),
			Credit:    string(t.Credit.Kind),
			CreditOrg: t.Credit.Org.String(),
			Amount:    t.Amount,
			Currency:  t.Debit.Currency,
		})
	}
	return out
}

func (a ledgerAPI) searchLedger(ctx context.Context, p account.Principal,
	in *client.LedgerQuery) (list[client.LedgerEntry], error) {
	before, err := cursor[id.LedgerTx](in.PageOf)
	if err != nil {
		return list[client.LedgerEntry]{}, err
	}
	rows, err := a.statements.SearchLedger(ctx, p, in.Q, before, in.Limit+1)
	view := func(b ledger.Booked) client.LedgerEntry {
		e := bookEntry(b.Entry)
		e.ID, e.At = b.ID.String(), b.At
		return e
	}
	return cut(rows, in.Limit, view, func(b ledger.Booked) string { return b.ID.String() }), err
}

func (a ledgerAPI) compensate(ctx context.Context, p account.Principal,
	in *act[id.LedgerTx, client.CompensateChargeRequest],
	once idem.Request) (client.LedgerEntry, idem.Outcome, error) {
	amount, err := positiveOrNone("amount", in.Body.Amount)
	if err != nil {
		return client.LedgerEntry{}, idem.Outcome{}, err
	}
	x, done, err := a.payments.Corrections.Compensate(ctx, p, in.ID, amount, in.Body.Reason, idem.As(once, bookEntry))
	return bookEntry(x), done, err
}

func (a ledgerAPI) frozenLeases(ctx context.Context, p account.Principal, _ *struct{}) (list[metering.FrozenLease],
	error) {
	all, err := a.leases.Frozen(ctx, p)
	return cut(all, len(all), same[metering.FrozenLease], func(metering.FrozenLease) string { return "" }), err
}

func viewUnfrozen(l id.Lease) client.UnfrozenLease { return client.UnfrozenLease{Lease: l} }

func (a ledgerAPI) unfreeze(ctx context.Context, p account.Principal, in *act[id.Lease, client.UnfreezeLeaseRequest],
	once idem.Request) (client.UnfrozenLease, idem.Outcome, error) {
	x, done, err := a.leases.Unfreeze(ctx, p, in.ID, in.Body.Reason, idem.As(once, viewUnfrozen))
	return viewUnfrozen(x), done, err
}

func (a ledgerAPI) quarantine(ctx context.Context, p account.Principal,
	in *client.PageOf) (list[metering.Refused], error) {
	var before int64
	if in.After != "" {
		n, err := strconv.ParseInt(in.After, 10, 64)
		if err != nil || n < 1 {
			return list[metering.Refused]{}, fault.InvalidField("query.after", "is not a cursor of this list")
		}
		before = n
	}
	rows, err := a.leases.Quarantined(ctx, p, before, in.Limit+1)
	return cut(rows, in.Limit, same[metering.Refused],
		func(r metering.Refused) string { return strconv.FormatInt(r.ID, 10) }), err
}

func (a ledgerAPI) heldCredits(ctx context.Context, p account.Principal, _ *struct{}) (list[metering.HeldCredit],
	error) {
	all, err := a.leases.HeldCredits(ctx, p)
	return cut(all, len(all), same[metering.HeldCredit], func(metering.HeldCredit) string { return "" }), err
}

func (a ledgerAPI) decideCredit(ctx context.Context, p account.Principal,
	in *act[id.Lease, client.DecideHeldCreditRequest],
	once idem.Request) (client.DecidedCredit, idem.Outcome, error) {
	view := func(l id.Lease) client.DecidedCredit {
		return client.DecidedCredit{Lease: l, Approved: in.Body.Approve}
	}
	_, done, err := a.leases.DecideCredit(ctx, p, in.ID, in.Body.Approve, in.Body.Reason, idem.As(once, view))
	return view(in.ID), done, err
}

func (a ledgerAPI) taxReport(ctx context.Context, p account.Principal, in *client.TaxQuery) (client.TaxReport, error) {
	r, err := a.statements.Taxes(ctx, p, in.Period)
	return viewTaxes(r), err
}

func viewTaxes(r tax.Report) client.TaxReport { return client.TaxReport(r) }

func (a ledgerAPI) taxReportCSV(w http.ResponseWriter, r *http.Request, p account.Principal,
	in *client.TaxQuery) error {
	t, err := a.statements.Taxes(r.Context(), p, in.Period)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="tax-`+strings.ToLower(t.Period)+`.csv"`)
	return t.CSV(w)
}

func (a ledgerAPI) remitTax(ctx context.Context, p account.Principal, in *create[client.RemitTaxRequest],
	once idem.Request) (client.TaxReport, idem.Outcome, error) {
	amount, err := amount("amount", in.Body.Amount)
	if err != nil {
		return client.TaxReport{}, idem.Outcome{}, err
	}
	r, done, err := a.payments.Taxes.Remit(ctx, p, tax.Remittance{
		Period:  in.Body.Period,
		Country: in.Body.Country,
		Amount:  amount,
		Reason:  in.Body.Reason,
	}, idem.As(once, viewTaxes))
	return viewTaxes(r), done, err
}
