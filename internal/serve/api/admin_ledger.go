package api

import (
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// TrialBalanceView is the trial balance. Amounts are whole nano-units as text: sums may be of any size.
type TrialBalanceView struct {
	Balanced bool        `json:"balanced"`
	Debits   string      `json:"debits_nano"`
	Credits  string      `json:"credits_nano"`
	Accounts []KindTotal `json:"accounts"`
	Problems []string    `json:"problems"`
}

// KindTotal is the balance of all accounts of a kind, credit minus debit.
type KindTotal struct {
	Kind     string `json:"kind"`
	Currency string `json:"currency"`
	Nano     string `json:"balance_nano"`
}

func (a *API) trialBalance(ctx context.Context, p account.Principal, _ *struct{}) (TrialBalanceView, error) {
	t, err := a.statements.TrialBalance(ctx, p)
	if err != nil {
		return TrialBalanceView{}, err
	}
	out := TrialBalanceView{
		Balanced: t.Balanced(),
		Debits:   t.Debits.String(),
		Credits:  t.Credits.String(),
		Accounts: []KindTotal{},
		Problems: append([]string{}, t.Problems...),
	}
	for _, x := range t.Totals {
		out.Accounts = append(out.Accounts, KindTotal{string(x.Kind), x.Currency, x.Amount.String()})
	}
	return out, nil
}

// BookEntry is one entry of the books.
type BookEntry struct {
	ID        string         `json:"id,omitempty"`
	Kind      string         `json:"kind"`
	Key       string         `json:"key"`
	Memo      string         `json:"memo"`
	Ref       string         `json:"ref,omitempty"`
	Corrects  string         `json:"corrects,omitempty"`
	At        string         `json:"at,omitempty"`
	Transfers []BookTransfer `json:"transfers"`
}

// BookTransfer is one of its transfers.
type BookTransfer struct {
	Debit     string     `json:"debit" doc:"kind of account"`
	DebitOrg  string     `json:"debit_org,omitempty"`
	Credit    string     `json:"credit"`
	CreditOrg string     `json:"credit_org,omitempty"`
	Amount    money.Nano `json:"amount"`
	Currency  string     `json:"currency"`
}

func bookEntry(e ledger.Entry) BookEntry {
	out := BookEntry{
		Kind:      e.Kind,
		Key:       e.Key,
		Memo:      e.Memo,
		Ref:       e.Ref,
		Corrects:  e.Corrects.String(),
		Transfers: []BookTransfer{},
	}
	for _, t := range e.Transfers {
		out.Transfers = append(out.Transfers, BookTransfer{string(t.Debit.Kind), t.Debit.Org.String(), string(t.Credit.Kind),
			t.Credit.Org.String(), t.Amount, t.Debit.Currency})
	}
	return out
}

func (a *API) searchLedger(ctx context.Context, p account.Principal, in *struct {
	Page
	Q string `query:"q" required:"true" minLength:"1" maxLength:"200" doc:"an entry's id or key, or the prefixed id of what it belongs to; an organisation's: all that moved its money"`
}) (list[BookEntry], error) {
	before, err := cursor[id.LedgerTx](in.Page)
	if err != nil {
		return list[BookEntry]{}, err
	}
	rows, err := a.statements.SearchLedger(ctx, p, in.Q, before, in.Limit+1)
	view := func(b ledger.Booked) BookEntry {
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

func (a *API) compensate(ctx context.Context, p account.Principal, in *compensateInput,
	once idem.Request) (BookEntry, idem.Outcome, error) {
	charge, err := pathID[id.LedgerTx](in.ID, "entry")
	if err != nil {
		return BookEntry{}, idem.Outcome{}, err
	}
	var amount money.Nano
	if in.Body.Amount != "" {
		if amount, err = money.ParseNano(in.Body.Amount); err != nil || amount <= 0 {
			return BookEntry{}, idem.Outcome{}, fault.InvalidField("amount", "is a decimal above zero")
		}
	}
	x, done, err := a.payments.Compensate(ctx, p, charge, amount, in.Body.Reason, idem.As(once, bookEntry))
	return bookEntry(x), done, err
}
