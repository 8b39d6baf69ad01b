package api

import (
	"context"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

func (a billingAPI) listRefunds(ctx context.Context, p account.Principal, _ *struct{}) (client.Refunds, error) {
	n, err := a.payments.Refunds.Refundable(ctx, p.Org)
	if err != nil {
		return client.Refunds{}, err
	}
	list, err := a.payments.Refunds.List(ctx, p.Org)
	return client.Refunds{Refundable: n, Items: list}, err
}

func (a billingAPI) giveBack(ctx context.Context, p account.Principal, in *create[client.CreateRefundRequest],
	once idem.Request) (client.MadeRefunds, idem.Outcome, error) {
	amount, err := amount("amount", in.Body.Amount)
	if err != nil {
		return client.MadeRefunds{}, idem.Outcome{}, err
	}
	list, done, err := a.payments.Refunds.GiveBack(ctx, p, amount, once)
	return client.MadeRefunds{Items: list}, done, err
}

func viewRedeemed(n money.Nano) client.Redeemed { return client.Redeemed{Amount: n} }

func (a billingAPI) redeem(ctx context.Context, p account.Principal, in *create[client.RedeemCodeRequest],
	once idem.Request) (client.Redeemed, idem.Outcome, error) {
	n, done, err := a.payments.PromoCodes.Redeem(ctx, p, in.Body.Code, idem.As(once, viewRedeemed))
	return viewRedeemed(n), done, err
}

func (a adminAPI) createPromo(ctx context.Context, p account.Principal, in *create[client.CreatePromoCodeRequest],
	once idem.Request) (payment.PromoCode, idem.Outcome, error) {
	amount, err := amount("amount", in.Body.Amount)
	if err != nil {
		return payment.PromoCode{}, idem.Outcome{}, err
	}
	return a.payments.PromoCodes.Create(ctx, p, payment.PromoCode{
		Code:      in.Body.Code,
		Amount:    amount,
		MaxUses:   in.Body.MaxUses,
		ExpiresAt: in.Body.ExpiresAt,
	}, in.Body.Reason, once)
}

func (a adminAPI) listPromos(ctx context.Context, p account.Principal, _ *struct{}) (list[payment.PromoCode], error) {
	codes, err := a.payments.PromoCodes.List(ctx, p)
	return cut(codes, len(codes), same[payment.PromoCode], func(c payment.PromoCode) string { return c.Code }), err
}

type promoEndInput struct {
	Keyed
	Code string `path:"code" maxLength:"100"`
	Body client.DisablePromoCodeRequest
}

func (a adminAPI) disablePromo(ctx context.Context, p account.Principal, in *promoEndInput,
	once idem.Request) (payment.PromoCode, idem.Outcome, error) {
	return a.payments.PromoCodes.Disable(ctx, p, in.Code, in.Body.Reason, once)
}

func (a platformAPI) reconciliation(ctx context.Context, p account.Principal, _ *struct{}) (client.Reconciliation,
	error) {
	return a.reconciler.Reconciliation(ctx, p)
}

type releaseRefundInput struct {
	Keyed
	ID   string `path:"id" doc:"Stripe's, re_…"`
	Body client.ReleaseRefundRequest
}

func viewReleased(refund string) client.ApprovedRefund {
	return client.ApprovedRefund{ID: refund, State: "released"}
}

func (a adminAPI) approveRefund(ctx context.Context, p account.Principal, in *releaseRefundInput,
	once idem.Request) (client.ApprovedRefund, idem.Outcome, error) {
	refund, done, err := a.payments.Refunds.Approve(ctx, p, in.ID, in.Body.Reason, idem.As(once, viewReleased))
	return viewReleased(refund), done, err
}
