package api

import (
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/idem"
)

func (a *API) sending(ctx context.Context, p account.Principal, _ *struct{}) (payment.Sending, error) {
	return a.payments.Sending(ctx, p)
}

type setSendingInput struct {
	Body struct {
		Paused bool   `json:"paused"`
		Reason string `json:"reason" doc:"the audit trail keeps it"`
	}
}

func (a *API) setSending(ctx context.Context, p account.Principal, in *setSendingInput) (payment.Sending, error) {
	out, _, err := a.payments.SetSending(ctx, p, in.Body.Paused, in.Body.Reason, idem.Request{})
	return out, err
}
