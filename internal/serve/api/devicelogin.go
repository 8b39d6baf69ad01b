package api

import (
	"context"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/idem"
)

type deviceLoginInput struct {
	Keyed
	Body struct {
		Machine string `json:"machine" maxLength:"200" doc:"what the person knows the machine by; they see it before they answer" example:"ada@laptop"`
	}
}

func (a accountAPI) beginDeviceLogin(ctx context.Context, caller account.Principal, in *deviceLoginInput,
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
	l, out, err := a.accounts.BeginDeviceLogin(ctx, in.Body.Machine, caller.Address, idem.As(once, view))
	return view(l), out, err
}

type devicePollInput struct {
	Keyed
	Body struct {
		DeviceCode string `json:"device_code" maxLength:"100" writeOnly:"true"`
	}
}

func (a accountAPI) pollDeviceLogin(ctx context.Context, caller account.Principal, in *devicePollInput,
	once idem.Request) (client.DeviceAnswer, idem.Outcome, error) {
	view := func(r account.DeviceAnswer) client.DeviceAnswer {
		return client.DeviceAnswer{Status: r.Status, Token: r.Token}
	}
	r, out, err := a.accounts.PollDeviceLogin(ctx, in.Body.DeviceCode, caller.Address, idem.As(once, view))
	return view(r), out, err
}
