package market

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
)

// maxReplans is how often Planning plans again after a stale plan.
const maxReplans = 3

// ErrStale means that a plan was made on a view that has changed since. Planning then plans again.
var ErrStale = &fault.Fault{
	Kind:       fault.Conflict,
	Message:    "others rented the same GPUs first, several times over: try again",
	RetryAfter: time.Second,
}

// Planning places a request on this replica's view of the fleet and runs claim, which claims the plan in its own
// transaction. It works in memory: it queries the database only for a newer view and for the hosts that have the
// request's image. GPUs of other plans whose claims are in progress on this replica are left out.
//
// If claim returns ErrStale, Planning reads the view again and places again, up to three times. If nothing fits, and a
// read of the database that began after this call confirms it, claim gets a placement without nodes and the fault to
// return: NoCapacity with explain and relaxations. If claim returns nil, the plan counts as claimed.
func (m *Market) Planning(ctx context.Context, a Request,
	claim func(ctx context.Context, plan Placement, refused error) error) error {
	if a.Renter.IsZero() {
		return errors.New("a request without its renter: it could be placed on their own hosts")
	}
	v, began := m.view, m.cfg.Now()
	if err := v.recent(ctx, m.cfg.MaxAge); err != nil {
		return err
	}
	if a.Image != "" {
		a.Cached = m.imageHolders(ctx, a.Image)
	}
	for confirmed, stale := false, 0; ; confirmed = true {
		var plan Placement
		var why Explain
		var taken *mark
		func() {
			v.mu.Lock()
			defer v.mu.Unlock()
			plan, why = Place(v.snap, a)
			taken = v.addMark(plan)
		}()
		switch {
		case len(plan.Nodes) > 0:
			err := v.whileMarked(taken, func() error { return claim(ctx, plan, nil) })
			if !errors.Is(err, ErrStale) || stale == maxReplans {
				return err
			}
			stale, began = stale+1, m.cfg.Now()
		case confirmed:
			why.Relaxations = m.relax(a)
			return claim(ctx, Placement{}, noCapacity(a, why))
		}
		if err := v.fresh(ctx, began, true); err != nil {
			return err
		}
	}
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func noCapacity(a Request, why Explain) error {
	f := fault.New(fault.NoCapacity, "no placement for %s × %s among %s", counted(a.Nodes, "node"), counted(a.GPUs, "GPU"),
		counted(why.Hosts, "host"))
	f.Extra = map[string]any{
		"explain": append([]client.Exclusion{}, why.Exclusions...), "hosts": why.Hosts,
		"relaxations": append([]client.Relaxation{}, why.Relaxations...), // encoded as a list, never null
	}
	if len(why.Unmeasured) > 0 {
		f.Extra["unmeasured"] = why.Unmeasured
	}
	return f
}
