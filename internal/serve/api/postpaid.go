package api

import (
	"context"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/postpaid"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// postpaidAPI answers the routes of postpaid terms, usage and invoices.
type postpaidAPI struct {
	postpaid *postpaid.Postpaid
}

func (a postpaidAPI) terms(ctx context.Context, p account.Principal, _ *struct{}) (out client.Postpaid, err error) {
	if out.PostpaidTerms, err = a.postpaid.Terms(ctx, p.Org); err != nil {
		return out, err
	}
	out.Period, err = a.postpaid.Running(ctx, p.Org)
	return out, err
}

// invoicesListed is the most invoices that are listed: ten years of them.
const invoicesListed = 120

func (a postpaidAPI) invoices(ctx context.Context, p account.Principal,
	_ *struct{}) (list[postpaid.CreditInvoice], error) {
	rows, err := a.postpaid.Invoices(ctx, p.Org, invoicesListed)
	return list[postpaid.CreditInvoice]{Items: rows}, err
}

type postpaidUsageInput struct {
	Invoice string `query:"invoice" doc:"of an invoice's period, by its id; left out: of the running one"`
}

func (a postpaidAPI) usage(ctx context.Context, p account.Principal,
	in *postpaidUsageInput) (postpaid.CreditLines, error) {
	return a.postpaid.Lines(ctx, p.Org, in.Invoice)
}

type payInvoiceInput struct {
	Keyed
	ID string `path:"id"`
}

func viewPaying(invoice string) client.PayingInvoice {
	return client.PayingInvoice{Invoice: invoice, State: "asked"}
}

func (a postpaidAPI) pay(ctx context.Context, p account.Principal, in *payInvoiceInput,
	once idem.Request) (client.PayingInvoice, idem.Outcome, error) {
	invoice, done, err := a.postpaid.Pay(ctx, p.Org, in.ID, idem.As(once, viewPaying))
	return viewPaying(invoice), done, err
}

func (a postpaidAPI) list(ctx context.Context, p account.Principal, in *struct{ Page }) (list[postpaid.Terms], error) {
	after, err := cursor[id.Org](in.Page)
	if err != nil {
		return list[postpaid.Terms]{}, err
	}
	rows, err := a.postpaid.All(ctx, p, after, in.Limit+1)
	return cut(rows, in.Limit, same[postpaid.Terms], func(t postpaid.Terms) string { return t.Org.String() }), err
}

type changePostpaidInput struct {
	ID   string `path:"id"`
	Body struct {
		On          bool   `json:"on" doc:"whether the organisation pays afterwards"`
		CreditLimit string `json:"credit_limit,omitempty" doc:"a decimal: what it may use and owe at most; with on" example:"500.00"`
		Reason      string `json:"reason" doc:"the organisation reads it"`
	}
}

func (a postpaidAPI) change(ctx context.Context, p account.Principal,
	in *changePostpaidInput) (out postpaid.Terms, err error) {
	org, err := pathID[id.Org](in.ID, "organisation")
	if err != nil {
		return out, err
	}
	c := postpaid.Change{On: in.Body.On, Reason: in.Body.Reason}
	if c.On || in.Body.CreditLimit != "" {
		if c.Limit, err = money.ParseNano(in.Body.CreditLimit); err != nil {
			return out, fault.InvalidField("credit_limit", "%s", err)
		}
	}
	out, _, err = a.postpaid.Set(ctx, p, org, c, idem.Request{})
	return out, err
}

func (a postpaidAPI) orgInvoices(ctx context.Context, p account.Principal, in *idInput) (list[postpaid.OrgInvoice], error) {
	org, err := pathID[id.Org](in.ID, "organisation")
	if err != nil {
		return list[postpaid.OrgInvoice]{}, err
	}
	rows, err := a.postpaid.InvoicesOf(ctx, p, org, invoicesListed)
	return list[postpaid.OrgInvoice]{Items: rows}, err
}

type writeOffInput struct {
	Keyed
	ID      string `path:"id"`
	Invoice string `path:"invoice"`
	Body    struct {
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
	}
}

type bankPaymentInput struct {
	Keyed
	ID      string `path:"id"`
	Invoice string `path:"invoice"`
	Body    struct {
		Amount    string `json:"amount" doc:"a decimal in whole cents: at most the invoice's lost_unpaid" example:"7.90"`
		Reference string `json:"reference" minLength:"1" maxLength:"140" doc:"of the transfer, as the bank's statement has it: of an invoice, one is booked once" example:"2026-11-20/4711"`
		Reason    string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
	}
}

func (a postpaidAPI) bankPayment(ctx context.Context, p account.Principal, in *bankPaymentInput,
	once idem.Request) (postpaid.OrgInvoice, idem.Outcome, error) {
	org, err := pathID[id.Org](in.ID, "organisation")
	if err != nil {
		return postpaid.OrgInvoice{}, idem.Outcome{}, err
	}
	amount, err := money.ParseNano(in.Body.Amount)
	if err != nil {
		return postpaid.OrgInvoice{}, idem.Outcome{}, fault.InvalidField("amount", "%s", err)
	}
	return a.postpaid.BookBankPayment(ctx, p, org, in.Invoice, postpaid.BankPayment{
		Amount:    amount,
		Reference: in.Body.Reference,
		Reason:    in.Body.Reason,
	}, once)
}

func (a postpaidAPI) writeOff(ctx context.Context, p account.Principal, in *writeOffInput,
	once idem.Request) (postpaid.OrgInvoice, idem.Outcome, error) {
	org, err := pathID[id.Org](in.ID, "organisation")
	if err != nil {
		return postpaid.OrgInvoice{}, idem.Outcome{}, err
	}
	return a.postpaid.WriteOff(ctx, p, org, in.Invoice, in.Body.Reason, once)
}
