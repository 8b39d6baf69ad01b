package api

import (
	"context"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
)

func viewLegal(l account.Legal) client.Legal {
	v := client.Legal{Name: l.Name, Address: l.Address, Country: l.Country, VATID: l.VATID}
	if v.Address == nil {
		v.Address = []string{}
	}
	if l.Known() {
		v.ChangedAt = utc(&l.ChangedAt)
	}
	return v
}

func (a orgAPI) getLegal(ctx context.Context, p account.Principal, _ *struct{}) (client.Legal, error) {
	l, err := a.accounts.Legals.Of(ctx, p)
	return viewLegal(l), err
}

func (a orgAPI) setLegal(ctx context.Context, p account.Principal,
	in *replace[client.SetLegalRequest]) (client.Legal, error) {
	l, err := a.accounts.Legals.Set(ctx, p, account.Legal{
		Name:    in.Body.Name,
		Address: in.Body.Address,
		Country: in.Body.Country,
		VATID:   in.Body.VATID,
	})
	return viewLegal(l), err
}

func (a orgAPI) eraseLegal(ctx context.Context, p account.Principal, _ *struct{}) (nothing, error) {
	return nothing{}, a.accounts.Legals.Erase(ctx, p)
}

func (a orgAPI) getZone(ctx context.Context, p account.Principal, _ *struct{}) (client.Zone, error) {
	zone, err := a.accounts.Zone(ctx, p)
	if err != nil {
		return client.Zone{}, err
	}
	return client.Zone{Zone: zone.String()}, nil
}

type zoneInput struct {
	Body client.Zone
}

func (a orgAPI) setZone(ctx context.Context, p account.Principal, in *zoneInput) (client.Zone, error) {
	if err := a.accounts.SetZone(ctx, p, in.Body.Zone); err != nil {
		return client.Zone{}, err
	}
	return in.Body, nil
}
