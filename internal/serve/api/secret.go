package api

import (
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fleet/cluster"
)

func (a *API) sealState(ctx context.Context, p account.Principal, _ *struct{}) (cluster.SealState, error) {
	return a.clusters.SealState(ctx, p)
}
