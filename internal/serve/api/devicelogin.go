package api

import (
	"context"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/idem"
)

func (a accountAPI) beginDeviceLogin(ctx context.Context, caller account.Principal,
	in *create[client.BeginDeviceLoginRequest],
	once idem.Request) (client.DeviceLogin, idem.Outcome, error) {
	view := func(l account.DeviceLogin) client.DeviceLogin {
		return client.DeviceLogin{
			DeviceCode:      l.DeviceCode,
			UserCode:        l.UserCode,
			VerificationURL: a.cfg.PublicURL + "/device",
			ExpiresAt:       l.ExpiresAt.UTC(),
			IntervalMS:      l.Interval.Milliseconds(),
		}
	}
	l, out, err := a.accounts.DeviceLogins.Begin(ctx, in.Body.Machine, caller.Address, idem.As(once, view))
	return view(l), out, err
}

func (a accountAPI) pollDeviceLogin(ctx context.Context, caller account.Principal,
	in *create[client.PollDeviceLoginRequest],
	once idem.Request) (client.DeviceAnswer, idem.Outcome, error) {
	view := func(r account.DeviceAnswer) client.DeviceAnswer {
		return client.DeviceAnswer{Status: r.Status, Token: r.Token}
	}
	r, out, err := a.accounts.DeviceLogins.Poll(ctx, in.Body.DeviceCode, caller.Address, idem.As(once, view))
	return view(r), out, err
}
