package billing

import (
	"cmp"
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/billing/postpaid"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

const (
	PostpaidInvoicesShown = 12
)

// onCredit returns an organisation's terms for paying by invoice; nil if it pays ahead and has no invoices.
func (s *Pages) onCredit(ctx context.Context, org id.Org) (*Postpaid, error) {
	t, err := s.Postpaid.Terms(ctx, org)
	if err != nil {
		return nil, err
	}
	invoices, err := s.Postpaid.Invoices(ctx, org, PostpaidInvoicesShown)
	if err != nil || t.State == postpaid.Off && len(invoices) == 0 {
		return nil, err
	}
	out := &Postpaid{
		Ending:  t.State != postpaid.On,
		Stopped: t.Stopped,
		Limit:   t.Limit,
		Used:    t.Used,
		Owed:    t.Owed,
		Left:    t.Left,
	}
	p, err := s.Postpaid.Running(ctx, org)
	if err != nil {
		return nil, err
	}
	if p != nil {
		out.HasPeriod, out.Charged, out.Unbilled = true, p.Charged, p.Unbilled
		out.Period = p.Start.Format("2 January") + " to " + p.End.Format("2 January 2006")
	}
	for _, in := range invoices {
		on := ""
		if in.Tax.Amount > 0 {
			on = view.Cents(in.Net) + " and " + taxLabel(in.Tax) + ": " + view.Cents(in.Tax.Amount)
		} else if in.Tax.Note != "" {
			on = in.Tax.Note
		}
		out.Invoices = append(out.Invoices, PostpaidInvoice{
			ID:      in.ID,
			Number:  cmp.Or(in.Number, "draft"),
			URL:     in.URL,
			Total:   in.Total,
			Tax:     on,
			Failing: in.Failing,
			Period:  in.Start.Format("2 January") + " to " + in.End.Format("2 January 2006"),
			State:   InvoiceState(in),
		})
	}
	return out, nil
}

func InvoiceState(in postpaid.CreditInvoice) view.State {
	switch {
	case in.State == "paid":
		return view.State{Word: "Paid", Icon: "check", Tone: "ok"}
	case in.State == "void":
		return view.State{Word: "Void", Icon: "info", Tone: "live"}
	case in.Failing:
		return view.State{Word: "Not paid", Icon: "error", Tone: "bad"}
	case in.State == "draft":
		return view.State{Word: "Being made", Icon: "info", Tone: "live"}
	}
	return view.State{Word: "Being collected", Icon: "info", Tone: "live"}
}

// payInvoice charges the default card for an invoice that it failed to pay.
func (s *Pages) payInvoice(v *page.Visit) error {
	_, _, err := s.Postpaid.Pay(v.R.Context(), v.Who.Org, chi.URLParam(v.R, "id"), idem.Request{})
	if err != nil {
		return err
	}
	http.Redirect(v.W, v.R, "/billing#postpaid", http.StatusSeeOther)
	return nil
}
