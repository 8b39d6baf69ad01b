package api

import (
	"context"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/idem"
)

func (a platformAPI) listFloors(ctx context.Context, p account.Principal, _ *struct{}) (client.VersionFloors, error) {
	all, err := a.hosts.Floors(ctx, p)
	return viewFloors(all), err
}

type setFloorInput struct {
	Component string `path:"component" enum:"docker,driver,runc,toolkit"`
	Body      client.SetVersionFloorRequest
}

func (a platformAPI) setFloor(ctx context.Context, p account.Principal,
	in *setFloorInput) (client.VersionFloors, error) {
	all, err := a.hosts.SetFloor(ctx, p, host.NewFloor{
		Component:  in.Component,
		Branch:     in.Body.Branch,
		Least:      in.Body.Least,
		Reason:     in.Body.Reason,
		Noticed:    in.Body.NoticedOn,
		BlocksFrom: in.Body.BlocksFrom,
	})
	return viewFloors(all), err
}

type removeFloorInput struct {
	Keyed
	Component string `path:"component" enum:"docker,driver,runc,toolkit"`
	Body      client.RemoveVersionFloorRequest
}

// removeFloor needs no key: a floor that is removed twice is not found the second time.
func (a platformAPI) removeFloor(ctx context.Context, p account.Principal, in *removeFloorInput,
	once idem.Request) (client.VersionFloors, idem.Outcome, error) {
	all, done, err := a.hosts.RemoveFloor(ctx, p, in.Component, in.Body.Branch, idem.As(once, viewFloors))
	return viewFloors(all), done, err
}

func viewFloors(all []client.VersionFloor) client.VersionFloors {
	return client.VersionFloors{Items: all}
}
