package admin

import (
	"cmp"
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/postpaid"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/billing"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

const debtorsShown = 200

// postpaidPages are the parts of pages about organisations that pay afterwards.
type postpaidPages struct {
	*page.Site
}

// debtors returns the organisations that pay by invoice, for staff.
func (s *postpaidPages) debtors(ctx context.Context, who account.Principal) ([]Debtor, error) {
	all, err := s.Postpaid.All(ctx, who, id.Org{}, debtorsShown)
	if err != nil {
		return nil, err
	}
	var out []Debtor
	for _, t := range all {
		if t.State == postpaid.Off && t.Owed == 0 && t.WrittenOff == 0 {
			continue
		}
		x := Debtor{
			Org:      t.Org.String(),
			Name:     t.Name,
			Currency: t.Currency,
			Limit:    t.Limit,
			Used:     t.Used,
			Owed:     t.Owed,
			State:    view.State{Word: "on", Icon: "check", Tone: "ok"},
		}
		switch {
		case t.WrittenOff > 0:
			x.State = view.State{Word: view.Cents(t.WrittenOff) + " written off", Icon: "error", Tone: "bad"}
		case t.State != postpaid.On:
			x.State = view.State{Word: string(t.State), Icon: "info", Tone: "live"}
		case t.Stopped != "":
			x.State = view.State{Word: t.Stopped, Icon: "error", Tone: "bad"}
		}
		out = append(out, x)
	}
	return out, nil
}

// invoicesOf adds an organisation's Stripe invoices to its page.
func (s *postpaidPages) invoicesOf(ctx context.Context, v *page.Visit, org id.Org, out *OneOrg) error {
	all, err := s.Postpaid.InvoicesOf(ctx, v.Who, org, billing.PostpaidInvoicesShown)
	if err != nil {
		return err
	}
	for _, in := range all {
		x := OrgInvoice{
			PostpaidInvoice: billing.PostpaidInvoice{
				ID:      in.ID,
				Number:  cmp.Or(in.Number, "draft"),
				URL:     in.URL,
				Total:   in.Total,
				Failing: in.Failing,
				Period:  in.Start.Format("2 January") + " to " + in.End.Format("2 January 2006"),
				State:   billing.InvoiceState(in.PostpaidInvoice),
			},
			CanGiveUp:  in.Failing,
			Lost:       in.Lost,
			LostUnpaid: in.LostUnpaid / money.Cent * money.Cent,
		}
		if in.PaidByBank > 0 {
			x.Note = view.Cents(in.PaidByBank) + " by bank, after a dispute"
		}
		if w := in.WriteOff; w != nil {
			x.CanGiveUp = in.Failing && w.State != postpaid.Requested && w.State != postpaid.Booked
			banked := x.Note
			if x.State, x.Note = writeOffState(*w, x.State); banked != "" {
				x.Note += " (" + banked + ")"
			}
		}
		if in.Lost > 0 {
			x.State, x.CanGiveUp = view.State{Word: "Lost in a dispute", Icon: "error", Tone: "bad"}, true
		}
		out.Invoices = append(out.Invoices, x)
	}
	return nil
}

// writeOffState returns the state of an invoice whose write-off was decided, and the reason.
func writeOffState(w postpaid.WriteOff, paid view.State) (view.State, string) {
	switch w.State {
	case postpaid.Requested:
		return view.State{Word: "Being given up", Icon: "info", Tone: "live"}, w.Reason
	case postpaid.Refused:
		return view.State{Word: "Not given up", Icon: "error", Tone: "bad"}, "Stripe refuses it: " + w.Failure
	case postpaid.Booked:
		return view.State{Word: "Written off", Icon: "error", Tone: "bad"}, view.Cents(w.Amount) + ": " + w.Reason
	case postpaid.Recovered:
		return view.State{Word: "Paid after all", Icon: "check", Tone: "ok"}, "It was written off: " + w.Reason
	}
	return paid, ""
}
