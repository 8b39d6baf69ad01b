package web

import (
	"strings"

	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/view"
)

// givingBack fills in what can be given back, what was, and the two forms as typed.
func (s *Web) givingBack(v *visit, forms billingForms, out *view.Billing) error {
	ctx := v.r.Context()
	n, err := s.Payments.Refundable(ctx, v.who.Org)
	if err != nil {
		return err
	}
	list, err := s.Payments.Refunds(ctx, v.who.Org)
	if err != nil {
		return err
	}
	for _, r := range list[:min(len(list), paymentsShown)] {
		out.Refunds = append(out.Refunds, s.viewRefund(r))
	}
	out.Refund, out.Promo = forms.refund, forms.promo
	out.Refund.Refundable, out.Refund.Once = n, newOnce()
	return nil
}

func (s *Web) viewRefund(r payment.Refund) view.PaymentRow {
	x := view.PaymentRow{Time: view.Clock(r.CreatedAt, s.Now()), Amount: r.Amount, Why: r.Failure}
	if r.Tax > 0 {
		x.Tax = "with tax " + view.Cents(r.Total)
	}
	switch r.State {
	case payment.Succeeded:
		x.State = view.State{Word: "Given back", Icon: "check", Tone: "ok"}
	case payment.Failed:
		x.State = view.State{Word: "Failed", Icon: "error", Tone: "bad"}
	default:
		x.State = view.State{Word: "Under way", Icon: "info", Tone: "live"}
	}
	return x
}

// giveBack sends unused balance back to the cards that paid it.
func (s *Web) giveBack(v *visit) error {
	forms := untouched()
	forms.refund.Amount = strings.TrimSpace(v.r.FormValue("refund_amount"))
	amount, err := money.ParseNano(forms.refund.Amount)
	if err != nil {
		err = fault.InvalidField("amount", "%s", err)
	} else {
		_, err = s.Payments.GiveBack(v.r.Context(), v.who, amount, v.once("refund_amount"))
	}
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			forms.refund.Error = first(errs, "amount", "")
			return s.showBilling(v, forms)
		})
	}
	return back(v, "/billing?given=1#refund")
}

// redeem adds a code's credit. Every try counts, also one that fails.
func (s *Web) redeem(v *visit) error {
	forms := untouched()
	forms.promo.Code = strings.TrimSpace(v.r.FormValue("promo_code"))
	_, _, err := s.Payments.Redeem(v.r.Context(), v.who, forms.promo.Code, idem.Request{})
	if fault.Is(err, fault.NotFound) { // of the code, not of the page
		err = fault.InvalidField("code", "%s", fault.From(err).Message)
	}
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			forms.promo.Error = first(errs, "code", "")
			return s.showBilling(v, forms)
		})
	}
	return back(v, "/billing?redeemed=1#promo")
}
