package market

import (
	"context"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// EstimatesPerMinute is how many estimates one address gets per minute and replica. An estimate runs the whole
// placement and needs no account.
const EstimatesPerMinute = 30

// Estimate returns the placement that a quote for the spec would have at this moment, and its price. It claims nothing,
// so others may rent the GPUs before the caller does. It needs no account, credit or image; address is the caller's,
// for the limit. The spec must be valid, as ParseQuoteSpec returns it.
//
// Faults: RateLimited if the address had EstimatesPerMinute within this minute; NoCapacity if nothing fits, with
// explain and relaxations, as Quote returns it.
func (m *Market) Estimate(ctx context.Context, address string, spec Spec) (Placement, error) {
	if !m.estimates.allow(address, m.cfg.Now()) {
		return Placement{}, &fault.Fault{
			Kind:       fault.RateLimited,
			Message:    "too many estimates from your network: wait a minute, or sign in and ask for a quote",
			RetryAfter: time.Minute,
		}
	}
	request, err := spec.Request(id.Org{})
	if err != nil {
		return Placement{}, fault.InvalidField("gpu", "%s", err)
	}
	if err := m.view.recent(ctx, m.cfg.MaxAge); err != nil {
		return Placement{}, err
	}
	m.view.mu.Lock()
	plan, why := Place(m.view.snap, request)
	m.view.mu.Unlock()
	if len(plan.Nodes) == 0 {
		why.Relaxations = m.relax(request)
		return Placement{}, noCapacity(request, why)
	}
	return plan, nil
}

// quota counts the calls of each address within a minute. The zero value is ready. It is safe for concurrent use.
type quota struct {
	mu     sync.Mutex
	minute time.Time
	calls  map[string]int
}

// allow counts a call and reports whether the address may make it. Its memory is bounded by the number of addresses
// that call within one minute.
func (q *quota) allow(address string, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if minute := now.Truncate(time.Minute); !minute.Equal(q.minute) {
		q.minute, q.calls = minute, map[string]int{}
	}
	q.calls[address]++
	return q.calls[address] <= EstimatesPerMinute
}
