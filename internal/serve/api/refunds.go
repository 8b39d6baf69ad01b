package api

import (
	"context"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

func (a billingAPI) listRefunds(ctx context.Context, p account.Principal, _ *struct{}) (client.Refunds, error) {
	n, err := a.payments.Refundable(ctx, p.Org)
	if err != nil {
		return client.Refunds{}, err
	}
	list, err := a.payments.Refunds(ctx, p.Org)
	return client.Refunds{Refundable: n, Items: list}, err
}

type refundInput struct {
	Keyed
	Body struct {
		Amount string `json:"amount" doc:"a decimal, in whole cents" example:"25.00"`
	}
}

func (a billingAPI) giveBack(ctx context.Context, p account.Principal, in *refundInput,
	once idem.Request) (client.MadeRefunds, idem.Outcome, error) {
	amount, err := money.ParseNano(in.Body.Amount)
	if err != nil {
		return client.MadeRefunds{}, idem.Outcome{}, fault.InvalidField("amount", "%s", err)
	}
	list, done, err := a.payments.GiveBack(ctx, p, amount, once)
	return client.MadeRefunds{Items: list}, done, err
}

type redeemInput struct {
	Keyed
	Body struct {
		Code string `json:"code" maxLength:"100"`
	}
}

func viewRedeemed(n money.Nano) client.Redeemed { return client.Redeemed{Amount: n} }

func (a billingAPI) redeem(ctx context.Context, p account.Principal, in *redeemInput,
	once idem.Request) (client.Redeemed, idem.Outcome, error) {
	n, done, err := a.payments.Redeem(ctx, p, in.Body.Code, idem.As(once, viewRedeemed))
	return viewRedeemed(n), done, err
}

type promoInput struct {
	Keyed
	Body struct {
		Code      string     `json:"code" doc:"8 to 40 letters, digits and dashes"`
		Amount    string     `json:"amount" doc:"a decimal, in whole cents" example:"10.00"`
		MaxUses   int        `json:"max_uses" minimum:"1" doc:"organisations that may use it, each once"`
		ExpiresAt *time.Time `json:"expires_at,omitempty"`
		Reason    string     `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
	}
}

func (a adminAPI) createPromo(ctx context.Context, p account.Principal, in *promoInput,
	once idem.Request) (payment.PromoCode, idem.Outcome, error) {
	amount, err := money.ParseNano(in.Body.Amount)
	if err != nil {
		return payment.PromoCode{}, idem.Outcome{}, fault.InvalidField("amount", "%s", err)
	}
	return a.payments.CreatePromoCode(ctx, p, payment.PromoCode{
		Code:      in.Body.Code,
		Amount:    amount,
		MaxUses:   in.Body.MaxUses,
		ExpiresAt: in.Body.ExpiresAt,
	}, in.Body.Reason, once)
}

func (a adminAPI) listPromos(ctx context.Context, p account.Principal, _ *struct{}) (list[payment.PromoCode], error) {
	codes, err := a.payments.PromoCodes(ctx, p)
	return cut(codes, len(codes), same[payment.PromoCode], func(c payment.PromoCode) string { return c.Code }), err
}

type promoEndInput struct {
	Keyed
	Code string `path:"code" maxLength:"100"`
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
	}
}

func (a adminAPI) disablePromo(ctx context.Context, p account.Principal, in *promoEndInput,
	once idem.Request) (payment.PromoCode, idem.Outcome, error) {
	return a.payments.DisablePromoCode(ctx, p, in.Code, in.Body.Reason, once)
}

func (a platformAPI) reconciliation(ctx context.Context, p account.Principal, _ *struct{}) (client.Reconciliation, error) {
	return a.reconciler.Reconciliation(ctx, p)
}

type releaseRefundInput struct {
	Keyed
	ID   string `path:"id" doc:"Stripe's, re_…"`
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
	}
}

func viewReleased(refund string) client.ApprovedRefund {
	return client.ApprovedRefund{ID: refund, State: "released"}
}

func (a adminAPI) approveRefund(ctx context.Context, p account.Principal, in *releaseRefundInput,
	once idem.Request) (client.ApprovedRefund, idem.Outcome, error) {
	refund, done, err := a.payments.ApproveRefund(ctx, p, in.ID, in.Body.Reason, idem.As(once, viewReleased))
	return viewReleased(refund), done, err
}
