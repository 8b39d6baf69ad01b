package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

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
	"github.com/musterhq/muster/internal/money"
)

// ledgerAPI answers the routes of the ledger: totals, search, corrections, frozen money, taxes.
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

func (a ledgerAPI) searchLedger(ctx context.Context, p account.Principal, in *struct {
	Page
	Q string `query:"q" required:"true" minLength:"1" maxLength:"200" doc:"an entry's id or key, or the prefixed id of what it belongs to; an organisation's: all that moved its money"`
}) (list[client.LedgerEntry], error) {
	before, err := cursor[id.LedgerTx](in.Page)
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

type compensateInput struct {
	Keyed
	ID   string `path:"id"`
	Body struct {
		Amount string `json:"amount,omitempty" doc:"a decimal; left out: all that is left of the charge"`
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"renter and operator read it"`
	}
}

func (a ledgerAPI) compensate(ctx context.Context, p account.Principal, in *compensateInput,
	once idem.Request) (client.LedgerEntry, idem.Outcome, error) {
	charge, err := pathID[id.LedgerTx](in.ID, "entry")
	if err != nil {
		return client.LedgerEntry{}, idem.Outcome{}, err
	}
	var amount money.Nano
	if in.Body.Amount != "" {
		if amount, err = money.ParseNano(in.Body.Amount); err != nil || amount <= 0 {
			return client.LedgerEntry{}, idem.Outcome{}, fault.InvalidField("amount", "is a decimal above zero")
		}
	}
	x, done, err := a.payments.Compensate(ctx, p, charge, amount, in.Body.Reason, idem.As(once, bookEntry))
	return bookEntry(x), done, err
}

func (a ledgerAPI) frozenLeases(ctx context.Context, p account.Principal, _ *struct{}) (list[metering.FrozenLease], error) {
	all, err := a.leases.Frozen(ctx, p)
	return cut(all, len(all), same[metering.FrozenLease], func(metering.FrozenLease) string { return "" }), err
}

type unfreezeInput struct {
	Keyed
	ID   string `path:"id"`
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the host's operator reads it"`
	}
}

func viewUnfrozen(l id.Lease) client.UnfrozenLease { return client.UnfrozenLease{Lease: l} }

func (a ledgerAPI) unfreeze(ctx context.Context, p account.Principal, in *unfreezeInput,
	once idem.Request) (client.UnfrozenLease, idem.Outcome, error) {
	l, err := pathID[id.Lease](in.ID, "lease")
	if err != nil {
		return client.UnfrozenLease{}, idem.Outcome{}, err
	}
	x, done, err := a.leases.Unfreeze(ctx, p, l, in.Body.Reason, idem.As(once, viewUnfrozen))
	return viewUnfrozen(x), done, err
}

func (a ledgerAPI) quarantine(ctx context.Context, p account.Principal, in *struct{ Page }) (list[metering.Refused], error) {
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

func (a ledgerAPI) heldCredits(ctx context.Context, p account.Principal, _ *struct{}) (list[metering.HeldCredit], error) {
	all, err := a.leases.HeldCredits(ctx, p)
	return cut(all, len(all), same[metering.HeldCredit], func(metering.HeldCredit) string { return "" }), err
}

type creditInput struct {
	Keyed
	ID   string `path:"id"`
	Body struct {
		Approve bool   `json:"approve" doc:"true books the credit, false refuses it for good"`
		Reason  string `json:"reason" minLength:"1" maxLength:"500" doc:"kept in the audit trail"`
	}
}

func (a ledgerAPI) decideCredit(ctx context.Context, p account.Principal, in *creditInput,
	once idem.Request) (client.DecidedCredit, idem.Outcome, error) {
	l, err := pathID[id.Lease](in.ID, "lease")
	if err != nil {
		return client.DecidedCredit{}, idem.Outcome{}, err
	}
	view := func(l id.Lease) client.DecidedCredit {
		return client.DecidedCredit{Lease: l, Approved: in.Body.Approve}
	}
	_, done, err := a.leases.DecideCredit(ctx, p, l, in.Body.Approve, in.Body.Reason, idem.As(once, view))
	return view(l), done, err
}

func (a ledgerAPI) taxReport(ctx context.Context, p account.Principal, in *struct {
	Period string `query:"period" required:"true" maxLength:"10" doc:"a year, quarter or month, in UTC" example:"2026-Q1"`
}) (client.TaxReport, error) {
	r, err := a.statements.Taxes(ctx, p, in.Period)
	return viewTaxes(r), err
}

func viewTaxes(r tax.Report) client.TaxReport { return client.TaxReport(r) }

func taxParams() []*huma.Param {
	return []*huma.Param{{
		Name:        "period",
		In:          "query",
		Required:    true,
		Description: "a year, quarter or month, in UTC, such as 2026-Q1",
		Schema:      &huma.Schema{Type: huma.TypeString},
	}}
}

func (a ledgerAPI) taxReportCSV(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	t, err := a.statements.Taxes(r.Context(), p, r.URL.Query().Get("period"))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="tax-`+strings.ToLower(t.Period)+`.csv"`)
	return t.CSV(w)
}

type remitTaxInput struct {
	Keyed
	Body struct {
		Period  string `json:"period" maxLength:"10" doc:"a year, quarter or month in UTC that is over" example:"2026-Q1"`
		Country string `json:"country" minLength:"2" maxLength:"2" doc:"as the report names it" example:"DE"`
		Amount  string `json:"amount" doc:"a decimal: at most what is left of the period" example:"1234.56"`
		Reason  string `json:"reason" minLength:"1" maxLength:"500" doc:"such as the reference of the bank's transfer; the audit trail keeps it"`
	}
}

func (a ledgerAPI) remitTax(ctx context.Context, p account.Principal, in *remitTaxInput,
	once idem.Request) (client.TaxReport, idem.Outcome, error) {
	amount, err := money.ParseNano(in.Body.Amount)
	if err != nil {
		return client.TaxReport{}, idem.Outcome{}, fault.InvalidField("amount", "%s", err)
	}
	r, done, err := a.payments.RemitTax(ctx, p, tax.Remittance{
		Period:  in.Body.Period,
		Country: in.Body.Country,
		Amount:  amount,
		Reason:  in.Body.Reason,
	}, idem.As(once, viewTaxes))
	return viewTaxes(r), done, err
}
