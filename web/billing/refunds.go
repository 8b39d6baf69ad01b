package billing

import (
	"strings"

	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// givingBack adds the refundable amount, past refunds, and the refund and promo forms as typed.
func (s *Pages) givingBack(v *page.Visit, forms billingForms, out *Billing) error {
	ctx := v.R.Context()
	n, err := s.Payments.Refunds.Refundable(ctx, v.Who.Org)
	if err != nil {
		return err
	}
	list, err := s.Payments.Refunds.List(ctx, v.Who.Org)
	if err != nil {
		return err
	}
	for _, r := range list[:min(len(list), paymentsShown)] {
		out.Refunds = append(out.Refunds, s.viewRefund(r))
	}
	out.Refund, out.Promo = forms.refund, forms.promo
	out.Refund.Refundable, out.Refund.Once = n, page.NewOnce()
	return nil
}

func (s *Pages) viewRefund(r payment.Refund) PaymentRow {
	x := PaymentRow{Time: view.Clock(r.CreatedAt, s.Now()), Amount: r.Amount, Why: r.Failure}
	if r.Tax > 0 {
		x.Tax = "with tax " + view.Cents(r.Total)
	}
	switch r.State {
	case payment.Succeeded:
		x.State = view.State{Word: "Refunded", Icon: "check", Tone: "ok"}
	case payment.Failed:
		x.State = view.State{Word: "Failed", Icon: "error", Tone: "bad"}
	default:
		x.State = view.State{Word: "Under way", Icon: "info", Tone: "live"}
	}
	return x
}

// giveBack refunds unused balance to the cards that paid it.
func (s *Pages) giveBack(v *page.Visit) error {
	forms := untouched()
	forms.tab = "payments"
	forms.refund.Amount = strings.TrimSpace(v.R.FormValue("refund_amount"))
	amount, err := money.ParseNano(forms.refund.Amount)
	if err != nil {
		err = fault.InvalidField("amount", "%s", err)
	} else {
		_, _, err = s.Payments.Refunds.GiveBack(v.R.Context(), v.Who, amount, v.Once("refund_amount"))
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			forms.refund.Error = page.First(errs, "amount", "")
			return s.showBilling(v, forms)
		})
	}
	return page.Back(v, "/billing?given=1#refund")
}

// redeem adds the credit of a promo code. Failed attempts count towards the limit, too.
func (s *Pages) redeem(v *page.Visit) error {
	forms := untouched()
	forms.tab = "payments"
	forms.promo.Code = strings.TrimSpace(v.R.FormValue("promo_code"))
	_, _, err := s.Payments.PromoCodes.Redeem(v.R.Context(), v.Who, forms.promo.Code, idem.Request{})
	if fault.Is(err, fault.NotFound) { // of the code, not of the page
		err = fault.InvalidField("code", "%s", fault.From(err).Message)
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			forms.promo.Error = page.First(errs, "code", "")
			return s.showBilling(v, forms)
		})
	}
	return page.Back(v, "/billing?redeemed=1#promo")
}
