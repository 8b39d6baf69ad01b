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

func (a postpaidAPI) usage(ctx context.Context, p account.Principal,
	in *client.PostpaidUsageQuery) (postpaid.CreditLines, error) {
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

func (a postpaidAPI) list(ctx context.Context, p account.Principal, in *client.PageOf) (list[postpaid.Terms], error) {
	after, err := cursor[id.Org](*in)
	if err != nil {
		return list[postpaid.Terms]{}, err
	}
	rows, err := a.postpaid.All(ctx, p, after, in.Limit+1)
	return cut(rows, in.Limit, same[postpaid.Terms], func(t postpaid.Terms) string { return t.Org.String() }), err
}

func (a postpaidAPI) change(ctx context.Context, p account.Principal,
	in *change[id.Org, client.ChangePostpaidRequest]) (out postpaid.Terms, err error) {
	c := postpaid.Change{On: in.Body.On, Reason: in.Body.Reason}
	if c.On || in.Body.CreditLimit != "" {
		if c.Limit, err = money.ParseNano(in.Body.CreditLimit); err != nil {
			return out, fault.InvalidField("credit_limit", "%s", err)
		}
	}
	out, _, err = a.postpaid.Set(ctx, p, in.ID, c, idem.Request{})
	return out, err
}

func (a postpaidAPI) orgInvoices(ctx context.Context, p account.Principal,
	in *of[id.Org]) (list[postpaid.OrgInvoice], error) {
	rows, err := a.postpaid.InvoicesOf(ctx, p, in.ID, invoicesListed)
	return list[postpaid.OrgInvoice]{Items: rows}, err
}

type writeOffInput struct {
	Keyed
	ID      id.Org `path:"id"`
	Invoice string `path:"invoice"`
	Body    client.WriteOffInvoiceRequest
}

type bankPaymentInput struct {
	Keyed
	ID      id.Org `path:"id"`
	Invoice string `path:"invoice"`
	Body    client.BookBankPaymentRequest
}

func (a postpaidAPI) bankPayment(ctx context.Context, p account.Principal, in *bankPaymentInput,
	once idem.Request) (postpaid.OrgInvoice, idem.Outcome, error) {
	amount, err := amount("amount", in.Body.Amount)
	if err != nil {
		return postpaid.OrgInvoice{}, idem.Outcome{}, err
	}
	return a.postpaid.BookBankPayment(ctx, p, in.ID, in.Invoice, postpaid.BankPayment{
		Amount:    amount,
		Reference: in.Body.Reference,
		Reason:    in.Body.Reason,
	}, once)
}

func (a postpaidAPI) writeOff(ctx context.Context, p account.Principal, in *writeOffInput,
	once idem.Request) (postpaid.OrgInvoice, idem.Outcome, error) {
	return a.postpaid.WriteOff(ctx, p, in.ID, in.Invoice, in.Body.Reason, once)
}
