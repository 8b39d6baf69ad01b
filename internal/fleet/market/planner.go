package market

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// maxReplans is how often Planning repeats an attempt whose plan was stale.
const maxReplans = 3

// ErrStale means that a plan was made on a view that has changed since. Planning then plans again.
var ErrStale = &fault.Fault{
	Kind:       fault.Conflict,
	Message:    "others rented the same GPUs first, several times over: try again",
	RetryAfter: time.Second,
}

// Planner makes plans on this replica's view of the fleet, for one attempt. See Planning.
type Planner struct {
	m      *Market
	plan   Placement
	image  string           // the image passed to Planning
	cached map[id.Host]bool // hosts that have image
	// confirmed means that the view was read after the request began, so a result that nothing fits is reliable.
	confirmed bool
}

// errUnconfirmed is a NoCapacity that the database has not confirmed yet.
type errUnconfirmed struct{ why Explain }

func (e *errUnconfirmed) Error() string {
	return "market: nothing fits in memory; not confirmed by the database"
}

// Place plans the cheapest possible gang for spec and the organisation that would rent it. It works in memory and does
// not query the database. It leaves out GPUs that other attempts on this replica are about to claim. A repeated call in
// the same attempt discards the previous plan. Fault: NoCapacity with explain and relaxations.
func (p *Planner) Place(ctx context.Context, renter id.Org, spec Spec) (Placement, error) {
	a, err := spec.Request(renter)
	if err != nil {
		return Placement{}, fault.InvalidField("gpu", "%s", err)
	}
	if spec.Image == p.image {
		a.Cached = p.cached
	}
	return p.PlaceRequest(ctx, a)
}

// Forget discards the plan: the attempt claims nothing.
func (p *Planner) Forget() { p.plan = Placement{} }

// PlaceRequest is Place for a request that the caller built itself, such as the replacement of a node. Its renter must
// be set.
func (p *Planner) PlaceRequest(ctx context.Context, a Request) (Placement, error) {
	if a.Renter.IsZero() {
		return Placement{}, errors.New("market: an ask without its renter: it could be placed on their own hosts")
	}
	if err := ctx.Err(); err != nil {
		return Placement{}, err
	}
	plan, why := p.m.view.plan(p, a)
	p.plan = plan
	if len(plan.Nodes) > 0 {
		return plan, nil
	}
	if !p.confirmed {
		return Placement{}, &errUnconfirmed{why}
	}
	why.Relaxations = p.m.relax(a)
	return Placement{}, noCapacity(a, why)
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
	return f
}

// Planning runs attempt, which makes a plan with p and claims it in its own transaction; it may call Planner.Place
// inside the transaction. image is the image of the workload: hosts that have it are preferred. Planning reads these
// hosts before the attempt, because Place must not need a second connection; "" prefers none.
//
// If the attempt fails because the plan was stale, Planning reads the view again and repeats the attempt, up to three
// times. If nothing fits in memory, Planning also repeats the attempt with a view that was read after this call began,
// so it never returns NoCapacity without such a read. If attempt returns nil, the last plan counts as claimed.
func (m *Market) Planning(ctx context.Context, image string,
	attempt func(ctx context.Context, p *Planner) error) error {
	asked := m.cfg.Now()
	if err := m.view.recent(ctx, m.cfg.MaxAge); err != nil {
		return err
	}
	var cached map[id.Host]bool
	if image != "" {
		cached = m.imageHolders(ctx, image)
	}
	confirmed := false
	for try := 0; ; {
		p := &Planner{m: m, image: image, cached: cached, confirmed: confirmed}
		err := p.run(ctx, attempt)
		var unsure *errUnconfirmed
		switch {
		case errors.As(err, &unsure) && !confirmed:
			if err := m.view.fresh(ctx, asked, true); err != nil {
				return err
			}
			confirmed = true
		case errors.Is(err, ErrStale) && try < maxReplans:
			try++
			if err := m.view.fresh(ctx, m.cfg.Now(), true); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// run makes one attempt and afterwards removes or keeps its marks on the view, even if attempt panics.
func (p *Planner) run(ctx context.Context, attempt func(context.Context, *Planner) error) (err error) {
	claimed := false
	defer func() {
		if !claimed {
			p.plan = Placement{}
		}
		p.m.view.sortMarks(p, p.plan.Nodes)
	}()
	err = attempt(ctx, p)
	claimed = err == nil
	return err
}
