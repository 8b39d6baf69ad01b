package api

import (
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

func (a *API) standing(ctx context.Context, p account.Principal, _ *struct{}) (payment.Standing, error) {
	return a.payments.Standing(ctx, p.Org)
}

type standingsView struct {
	Items []payment.NotInGoodStanding `json:"items"`
}

func (a *API) standings(ctx context.Context, p account.Principal, _ *struct{}) (standingsView, error) {
	list, err := a.payments.Standings(ctx, p)
	return standingsView{list}, err
}

type forgiveInput struct {
	Keyed
	ID   string `path:"id"`
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
	}
}

type forgivenView struct {
	ID string `json:"id"`
}

func viewForgiven(org id.Org) forgivenView { return forgivenView{org.String()} }

func (a *API) forgiveDisputes(ctx context.Context, p account.Principal, in *forgiveInput,
	once idem.Request) (forgivenView, idem.Outcome, error) {
	org, err := pathID[id.Org](in.ID, "organisation")
	if err != nil {
		return forgivenView{}, idem.Outcome{}, err
	}
	_, done, err := a.payments.Forgive(ctx, p, org, in.Body.Reason, idem.As(once, viewForgiven))
	return viewForgiven(org), done, err
}
