package api

import (
	"context"
	"strconv"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func (a *API) frozenLeases(ctx context.Context, p account.Principal, _ *struct{}) (list[metering.FrozenLease], error) {
	all, err := metering.AllFrozen(ctx, a.db.Q, p)
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

func (a *API) unfreeze(ctx context.Context, tx *db.Tx, p account.Principal, in *unfreezeInput) (Unfrozen, error) {
	l, err := pathID[id.Lease](in.ID, "lease")
	if err != nil {
		return Unfrozen{}, err
	}
	return Unfrozen{l}, metering.Unfreeze(ctx, tx, p, l, in.Body.Reason)
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
	rows, err := metering.Quarantined(ctx, a.db.Q, p, before, in.Limit+1)
	return cut(rows, in.Limit, same[metering.Refused],
		func(r metering.Refused) string { return strconv.FormatInt(r.ID, 10) }), err
}
