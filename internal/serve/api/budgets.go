package api

import (
	"context"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// budgetsAPI answers the routes of budgets.
type budgetsAPI struct {
	budgets *budget.Budgets
}

func viewBudget(b budget.Budget) client.Budget {
	return client.Budget{
		ID:          b.ID,
		Project:     b.Project,
		Cap:         b.Cap,
		Spent:       b.Spent,
		Committed:   b.Committed,
		Left:        b.Left(),
		MaxPrice:    b.MaxRate,
		MaxDuration: b.MaxDuration,
		Currency:    b.Currency,
		Since:       b.Since.UTC(),
	}
}

// limits parses the request's decimals. Fault: Invalid.
func limits(r client.SetBudgetRequest) (l budget.Limits, err error) {
	var bad fault.Fields
	l.MaxDuration = r.MaxDuration
	if r.Cap != nil {
		n, err := money.ParseNano(*r.Cap)
		if err != nil {
			bad.Add("cap", "%s", err)
		}
		l.Cap = &n
	}
	if r.MaxPrice != nil {
		n, err := money.ParseMicro(*r.MaxPrice)
		if err != nil {
			bad.Add("max_price_per_hour", "%s", err)
		}
		l.MaxRate = &n
	}
	return l, bad.Err()
}

func (a budgetsAPI) set(ctx context.Context, p account.Principal, in *create[client.SetBudgetRequest],
	once idem.Request) (client.Budget, idem.Outcome, error) {
	l, err := limits(in.Body)
	if err != nil {
		return client.Budget{}, idem.Outcome{}, err
	}
	b, done, err := a.budgets.Set(ctx, p, budget.Change{Project: in.Body.Project, Limits: l}, idem.As(once, viewBudget))
	return viewBudget(b), done, err
}

func (a budgetsAPI) list(ctx context.Context, p account.Principal, _ *struct{}) (list[client.Budget], error) {
	all, err := a.budgets.List(ctx, p)
	return cut(all, len(all), viewBudget, func(b budget.Budget) string { return b.ID.String() }), err
}

func (a budgetsAPI) get(ctx context.Context, p account.Principal, in *of[id.Budget]) (client.Budget, error) {
	v, err := a.budgets.Get(ctx, p, in.ID)
	return viewBudget(v), err
}

func (a budgetsAPI) remove(ctx context.Context, p account.Principal, in *of[id.Budget]) (nothing, error) {
	return nothing{}, a.budgets.Remove(ctx, p, in.ID)
}
