package api

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

type budgetInput struct {
	Keyed
	Body struct {
		Project     string  `json:"project,omitempty" doc:"left out: the budget of the whole organisation"`
		Cap         *string `json:"cap,omitempty" doc:"a decimal; what may be spent or held in all; left out: no cap" example:"500.00"`
		MaxPrice    *string `json:"max_price_per_hour,omitempty" doc:"a decimal; the dearest cluster; left out: any"`
		MaxDuration *int64  `json:"max_duration,omitempty" doc:"seconds; the longest run of a cluster; left out: any"`
	}
}

type budgetView struct {
	ID          id.Budget    `json:"id"`
	Project     string       `json:"project" doc:"empty: the whole organisation"`
	Cap         *money.Nano  `json:"cap"`
	Spent       money.Nano   `json:"spent" doc:"booked since the budget was set; notices of a half, four fifths and all count this"`
	Committed   money.Nano   `json:"committed" doc:"spent, and what is held now for the next hour of clusters: never more than the cap"`
	Left        *money.Nano  `json:"left" doc:"null: no cap"`
	MaxPrice    *money.Micro `json:"max_price_per_hour" doc:"of one cluster"`
	MaxDuration *int64       `json:"max_duration" doc:"seconds, of one cluster"`
	Currency    string       `json:"currency"`
	Since       time.Time    `json:"since"`
}

func viewBudget(b budget.Budget) budgetView {
	return budgetView{b.ID, b.Project, b.Cap, b.Spent, b.Committed, b.Left(), b.MaxRate, b.MaxDuration, b.Currency,
		b.Since.UTC()}
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

func (a *API) setBudget(ctx context.Context, p account.Principal, in *budgetInput,
	once idem.Request) (budgetView, idem.Outcome, error) {
	l, err := in.limits()
	if err != nil {
		return budgetView{}, idem.Outcome{}, err
	}
	b, done, err := a.budgets.Set(ctx, p, budget.Change{Project: in.Body.Project, Limits: l}, idem.As(once, viewBudget))
	return viewBudget(b), done, err
}

func (a *API) listBudgets(ctx context.Context, p account.Principal, _ *struct{}) (list[budgetView], error) {
	all, err := a.budgets.List(ctx, p)
	return cut(all, len(all), viewBudget, func(b budget.Budget) string { return b.ID.String() }), err
}

func (a *API) getBudget(ctx context.Context, p account.Principal, in *idInput) (budgetView, error) {
	b, err := pathID[id.Budget](in.ID, "budget")
	if err != nil {
		return budgetView{}, err
	}
	v, err := a.budgets.Get(ctx, p, b)
	return viewBudget(v), err
}

func (a *API) removeBudget(ctx context.Context, p account.Principal, in *idInput) (nothing, error) {
	b, err := pathID[id.Budget](in.ID, "budget")
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, a.budgets.Remove(ctx, p, b)
}
