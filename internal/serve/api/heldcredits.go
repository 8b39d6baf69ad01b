package api

import (
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

func (a *API) heldCredits(ctx context.Context, p account.Principal, _ *struct{}) (list[metering.HeldCredit], error) {
	all, err := a.leases.HeldCredits(ctx, p)
	return cut(all, len(all), same[metering.HeldCredit], func(metering.HeldCredit) string { return "" }), err
}

type creditInput struct {
	Keyed
	ID   string `path:"id"`
	Body struct {
		Approve bool   `json:"approve" doc:"true books the credit, false refuses it for good"`
		Reason  string `json:"reason" minLength:"1" maxLength:"500" doc:"kept in the audit trail"`
	}
}

// DecidedCredit is a credit that no longer waits.
type DecidedCredit struct {
	Lease    id.Lease `json:"lease_id"`
	Approved bool     `json:"approved"`
}

func (a *API) decideCredit(ctx context.Context, p account.Principal, in *creditInput,
	once idem.Request) (DecidedCredit, idem.Outcome, error) {
	l, err := pathID[id.Lease](in.ID, "lease")
	if err != nil {
		return DecidedCredit{}, idem.Outcome{}, err
	}
	view := func(l id.Lease) DecidedCredit { return DecidedCredit{l, in.Body.Approve} }
	_, done, err := a.leases.DecideCredit(ctx, p, l, in.Body.Approve, in.Body.Reason, idem.As(once, view))
	return view(l), done, err
}
