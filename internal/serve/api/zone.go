package api

import (
	"context"

	"github.com/musterhq/muster/internal/account"
)

type zoneView struct {
	Zone string `json:"zone" doc:"an IANA time zone: statements, earnings and documents use its days" example:"Europe/Berlin"`
}

func (a *API) getZone(ctx context.Context, p account.Principal, _ *struct{}) (zoneView, error) {
	zone, err := a.accounts.Zone(ctx, p)
	if err != nil {
		return zoneView{}, err
	}
	return zoneView{zone.String()}, nil
}

type zoneInput struct {
	Body zoneView
}

func (a *API) setZone(ctx context.Context, p account.Principal, in *zoneInput) (zoneView, error) {
	if err := a.accounts.SetZone(ctx, p, in.Body.Zone); err != nil {
		return zoneView{}, err
	}
	return in.Body, nil
}
