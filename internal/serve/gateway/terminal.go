package gateway

import (
	"context"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/dialback"
)

// Terminal runs a login shell on the visitor's rank, for a terminal that is not SSH's. The visitor is already
// authenticated. It returns the shell's exit code when the shell has ended, and an error when ctx is done, when the
// visitor's credential becomes invalid, or when the gateway closes. Faults: NotFound, Conflict (the rank does not run),
// Unavailable, RateLimited.
func (g *Gateway) Terminal(ctx context.Context, v Visitor, t dialback.Terminal) (code int, err error) {
	by := ctx // the caller's
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx, leave, err := g.enter(ctx, &canceller{cancel}, v)
	if err != nil {
		return 0, err
	}
	defer leave()
	err = g.record(ctx, v, "cluster.shell", v.Rank, map[string]any{"kind": agentapi.ExecLogin, "terminal": "browser"})
	if err != nil {
		return 0, err
	}
	visit := g.visit(ctx, v)
	defer visit.closeNodes()
	node, err := visit.node(v.Rank)
	if err != nil {
		return 0, err
	}
	code, err = node.RunTerminal(ctx, t)
	if err != nil && ctx.Err() != nil && by.Err() == nil {
		return 0, fault.New(fault.Unauthorized, "You were signed out, or your role ended, or this server restarts.")
	}
	return code, err
}

// canceller is a context as an io.Closer.
type canceller struct{ cancel context.CancelFunc }

func (c *canceller) Close() error {
	c.cancel()
	return nil
}
