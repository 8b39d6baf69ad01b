package api

import (
	"context"
	"time"

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
	Body      struct {
		Branch     string     `json:"branch,omitempty" doc:"the beginning of the versions that it is of, up to a dot; left out: of all that no other floor is of" maxLength:"20" example:"1.3."`
		Least      string     `json:"least" doc:"the oldest version" maxLength:"20" example:"1.3.3"`
		Reason     string     `json:"reason" doc:"operators read it" minLength:"1" maxLength:"200"`
		NoticedOn  string     `json:"noticed_on" doc:"the day on which the reason became known" format:"date" example:"2025-11-05"`
		BlocksFrom *time.Time `json:"blocks_from,omitempty" doc:"from when on an older version keeps a host from being rented; left out: it is a warning only"`
	}
}

func (a platformAPI) setFloor(ctx context.Context, p account.Principal, in *setFloorInput) (client.VersionFloors, error) {
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
	Body      struct {
		Branch string `json:"branch,omitempty" maxLength:"20" example:"1.3."`
	}
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
