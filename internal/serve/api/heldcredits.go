package api

import (
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

func (a *API) heldCredits(ctx context.Context, p account.Principal, _ *struct{}) (list[metering.HeldCredit], error) {
	all, err := metering.HeldCredits(ctx, a.db.Q, p)
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

func (a *API) decideCredit(ctx context.Context, tx *db.Tx, p account.Principal,
	in *creditInput) (DecidedCredit, error) {
	l, err := pathID[id.Lease](in.ID, "lease")
	if err != nil {
		return DecidedCredit{}, err
	}
	return DecidedCredit{l, in.Body.Approve}, metering.DecideCredit(ctx, tx, p, l, in.Body.Approve, in.Body.Reason)
}
