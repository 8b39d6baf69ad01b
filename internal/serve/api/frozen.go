package api

import (
	"context"
	"strconv"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

func (a *API) frozenLeases(ctx context.Context, p account.Principal, _ *struct{}) (list[metering.FrozenLease], error) {
	all, err := a.leases.Frozen(ctx, p)
	return cut(all, len(all), same[metering.FrozenLease], func(metering.FrozenLease) string { return "" }), err
}

type unfreezeInput struct {
	Keyed
	ID   string `path:"id"`
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the host's operator reads it"`
	}
}

// Unfrozen is a lease whose money moves again.
type Unfrozen struct {
	Lease id.Lease `json:"lease_id"`
}

func viewUnfrozen(l id.Lease) Unfrozen { return Unfrozen{l} }

func (a *API) unfreeze(ctx context.Context, p account.Principal, in *unfreezeInput,
	once idem.Request) (Unfrozen, idem.Outcome, error) {
	l, err := pathID[id.Lease](in.ID, "lease")
	if err != nil {
		return Unfrozen{}, idem.Outcome{}, err
	}
	x, done, err := a.leases.Unfreeze(ctx, p, l, in.Body.Reason, idem.As(once, viewUnfrozen))
	return viewUnfrozen(x), done, err
}

func (a *API) quarantine(ctx context.Context, p account.Principal, in *struct{ Page }) (list[metering.Refused], error) {
	var before int64
	if in.After != "" {
		n, err := strconv.ParseInt(in.After, 10, 64)
		if err != nil || n < 1 {
			return list[metering.Refused]{}, fault.InvalidField("query.after", "is not a cursor of this list")
		}
		before = n
	}
	rows, err := a.leases.Quarantined(ctx, p, before, in.Limit+1)
	return cut(rows, in.Limit, same[metering.Refused],
		func(r metering.Refused) string { return strconv.FormatInt(r.ID, 10) }), err
}
