package billing

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// paymentsShown is how many of the last payments the billing page shows.
const paymentsShown = 10

// paying returns the cards and payments for the billing page.
func (s *Pages) paying(ctx context.Context, org id.Org) (out Paying, err error) {
	cards, err := s.Payments.Cards.List(ctx, org)
	if err != nil {
		return out, err
	}
	for _, c := range cards {
		out.Cards = append(out.Cards, CardRow{
			ID:      c.ID.String(),
			Name:    c.Brand + " …" + c.Last4,
			Expires: fmt.Sprintf("%02d/%d", c.ExpMonth, c.ExpYear),
			Default: c.Default,
		})
	}
	list, err := s.Payments.TopUps.List(ctx, org, id.TopUp{}, paymentsShown)
	if err != nil {
		return out, err
	}
	for _, t := range list {
		out.Payments = append(out.Payments, s.viewPayment(t))
	}
	standing, err := s.Payments.Standings.Of(ctx, org)
	if err != nil {
		return out, err
	}
	if standing.Limit != nil {
		out.Limit = PayInLimit{
			Limit: typed(*standing.Limit),
			Left:  typed(*standing.Left),
			Email: standing.EmailVerified,
			Card:  standing.CardVerified,
		}
	}
	out.Disputed = viewDisputed(standing, s.Currency)
	auto, err := s.Payments.AutoTopUps.Get(ctx, org)
	if err != nil {
		return out, err
	}
	out.Auto = AutoForm{
		Enabled:   auto.Enabled,
		Stopped:   auto.Stopped,
		Threshold: "20.00",
		Amount:    "50.00",
		DailyCap:  "200.00",
	}
	if auto.Amount > 0 {
		out.Auto.Threshold, out.Auto.Amount, out.Auto.DailyCap = typed(auto.Threshold), typed(auto.Amount),
			typed(auto.DailyCap)
	}
	return out, nil
}

// viewDisputed explains how disputed payments limit what a payer may add and rent.
func viewDisputed(st payment.Standing, currency string) (d DisputedMoney) {
	var say []string
	add := func(format string, args ...any) { say = append(say, fmt.Sprintf(format, args...)) }
	switch st.State {
	case payment.StandingSuspended:
		d.Title = "Your organisation is suspended"
		add("%d disputed payments were decided for the card's owner. Nothing new can be rented and no credit added. Write "+
			"to us if this is a mistake.", st.LostDisputes)
	case payment.StandingDisputed:
		d.Title = "Payments of " + typed(st.Disputed) + " " + currency + " are disputed"
		add("That much of your balance is set aside until the card's bank has decided. You can rent with what is left of "+
			"your prepaid credit, and add at most %s.", typed(*st.DisputedLeft))
	}
	if st.Short > 0 {
		add("%s is missing: it is set aside from whatever is credited to you next, and clusters run no longer than they "+
			"are authorised already.", typed(st.Short))
	}
	if st.Debt > 0 {
		if d.Title == "" {
			d.Title = "A lost dispute has to be repaid"
		}
		add("The credit that you add next repays %s of lost disputes first.", typed(st.Debt))
	}
	d.Body = strings.Join(say, " ")
	return d
}

// typed formats an amount as people type it: exact, with at least two decimals.
func typed(n money.Nano) string {
	whole, frac, _ := strings.Cut(n.String(), ".")
	return whole + "." + frac[:2] + strings.TrimRight(frac[2:], "0")
}

// setAutoTopUp switches automatic top-up on, with the limits of the form, or off.
func (s *Pages) setAutoTopUp(v *page.Visit) error {
	form := AutoForm{
		Threshold: strings.TrimSpace(v.R.FormValue("threshold")),
		Amount:    strings.TrimSpace(v.R.FormValue("auto_amount")),
		DailyCap:  strings.TrimSpace(v.R.FormValue("daily_cap")),
		Errors:    map[string]string{},
	}
	want := payment.AutoTopUp{Enabled: v.R.FormValue("enabled") == "yes"}
	if want.Enabled {
		for _, f := range []struct {
			name, text string
			to         *money.Nano
		}{{"threshold", form.Threshold, &want.Threshold}, {"amount", form.Amount, &want.Amount},
			{"daily_cap", form.DailyCap, &want.DailyCap}} {
			n, err := money.ParseNano(f.text)
			if err != nil {
				form.Errors[f.name] = err.Error()
			}
			*f.to = n
		}
	}
	forms := untouched()
	forms.tab, forms.auto = "payments", &form
	if len(form.Errors) > 0 {
		v.Status = fault.Invalid.HTTPStatus()
		return s.showBilling(v, forms)
	}
	if err := s.Payments.AutoTopUps.Set(v.R.Context(), v.Who, want); err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			form.Stopped = errs[""]
			return s.showBilling(v, forms)
		})
	}
	return page.Back(v, "/billing?tab=payments#auto")
}

func (s *Pages) viewPayment(t payment.TopUp) PaymentRow {
	x := PaymentRow{Time: view.Clock(t.CreatedAt, s.Now()), Amount: t.Amount, Why: t.Failure, Receipt: t.ReceiptURL}
	if t.Tax.Amount > 0 {
		x.Tax = "and " + taxLabel(t.Tax) + ": " + view.Cents(t.Total)
	}
	switch {
	case t.ActionURL != "":
		x.State, x.Href, x.Do = view.State{
			Word: "Your bank asks",
			Icon: "warn",
			Tone: "warn",
		}, t.ActionURL, "Answer your bank"
	case t.CheckoutURL != "":
		x.State, x.Href, x.Do = view.State{Word: "To be paid", Icon: "warn", Tone: "warn"}, t.CheckoutURL, "Pay"
	case t.State == payment.Pending:
		x.State = view.State{Word: "Under way", Icon: "info", Tone: "live"}
	case t.State == payment.Succeeded:
		x.Document = page.ReceiptURL(t.ID.String())
		x.State = view.State{Word: "Paid", Icon: "check", Tone: "ok"}
	case t.State == payment.Failed:
		x.State = view.State{Word: "Failed", Icon: "error", Tone: "bad"}
	default:
		x.State = view.State{Word: "Given up", Icon: "info", Tone: "idle"}
	}
	return x
}

// taxLabel returns a tax's name and rate.
func taxLabel(t payment.Tax) string { return t.Name + " " + t.Percent + " %" }

// taxNote describes the tax added to the organisation's payments; "" if there is none.
func (s *Pages) taxNote(ctx context.Context, org id.Org) (string, error) {
	p, err := s.Payments.Taxes.Price(ctx, org, 100*money.Unit)
	if fault.Is(err, fault.Unavailable) {
		return "Tax is added; the rate is not available now.", nil
	}
	if err != nil {
		return "", err
	}
	if p.Tax.Amount > 0 {
		return strings.TrimSpace(taxLabel(p.Tax) + " is added: 100.00 are charged as " + view.Cents(p.Total) + ". " +
			p.Tax.Note), nil
	}
	return p.Tax.Note, nil
}

// confirm returns the total to confirm before a payment; nil if no tax is added to the amount.
func (s *Pages) confirm(ctx context.Context, org id.Org, amount money.Nano, card id.Card) (*ToPay, error) {
	p, err := s.Payments.Taxes.Price(ctx, org, amount)
	if err != nil || p.Tax.Amount == 0 {
		return nil, err
	}
	return &ToPay{Amount: p.Amount, Tax: p.Tax.Amount, Total: p.Total, Label: taxLabel(p.Tax), Note: p.Tax.Note,
		TypedAmount: typed(amount), Typed: typed(p.Total), Card: card.String(), Once: page.NewOnce()}, nil
}

// addCard redirects to Stripe's page for saving a card.
func (s *Pages) addCard(v *page.Visit) error {
	c, _, err := s.Payments.Cards.Add(v.R.Context(), v.Who, "", idem.Request{})
	if err != nil {
		return err
	}
	if c.URL == "" {
		return fault.New(fault.Unavailable, "the page for saving a card cannot be reached now: try again in a minute")
	}
	return page.Back(v, c.URL)
}

func (s *Pages) defaultCard(v *page.Visit) error {
	c, err := id.Parse[id.Card](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "card not found")
	}
	if err := s.Payments.Cards.SetDefault(v.R.Context(), v.Who, c); err != nil {
		return err
	}
	return page.Back(v, "/billing?tab=payments#cards")
}

func (s *Pages) removeCard(v *page.Visit) error {
	c, err := id.Parse[id.Card](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "card not found")
	}
	if err := s.Payments.Cards.Remove(v.R.Context(), v.Who, c); err != nil {
		return err
	}
	return page.Back(v, "/billing?tab=payments#cards")
}
