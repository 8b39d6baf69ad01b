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

type budgetInput struct {
	Keyed
	Body struct {
		Project     string  `json:"project,omitempty" doc:"left out: the budget of the whole organisation"`
		Cap         *string `json:"cap,omitempty" doc:"a decimal; what may be spent or held in all; left out: no cap" example:"500.00"`
		MaxPrice    *string `json:"max_price_per_hour,omitempty" doc:"a decimal; the dearest cluster; left out: any"`
		MaxDuration *int64  `json:"max_duration,omitempty" doc:"seconds; the longest run of a cluster; left out: any"`
	}
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
func (in *budgetInput) limits() (l budget.Limits, err error) {
	var bad fault.Fields
	l.MaxDuration = in.Body.MaxDuration
	if in.Body.Cap != nil {
		n, err := money.ParseNano(*in.Body.Cap)
		if err != nil {
			bad.Add("cap", "%s", err)
		}
		l.Cap = &n
	}
	if in.Body.MaxPrice != nil {
		n, err := money.ParseMicro(*in.Body.MaxPrice)
		if err != nil {
			bad.Add("max_price_per_hour", "%s", err)
		}
		l.MaxRate = &n
	}
	return l, bad.Err()
}

func (a budgetsAPI) set(ctx context.Context, p account.Principal, in *budgetInput,
	once idem.Request) (client.Budget, idem.Outcome, error) {
	l, err := in.limits()
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

func (a budgetsAPI) get(ctx context.Context, p account.Principal, in *idInput) (client.Budget, error) {
	b, err := pathID[id.Budget](in.ID, "budget")
	if err != nil {
		return client.Budget{}, err
	}
	v, err := a.budgets.Get(ctx, p, b)
	return viewBudget(v), err
}

func (a budgetsAPI) remove(ctx context.Context, p account.Principal, in *idInput) (nothing, error) {
	b, err := pathID[id.Budget](in.ID, "budget")
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, a.budgets.Remove(ctx, p, b)
}
