package web

import (
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/view"
)

// budgets are the org's, and the form as it was typed.
func (s *Web) budgets(v *visit, form view.BudgetForm) (view.Budgets, error) {
	all, err := s.Budgets.List(v.r.Context(), v.who)
	if err != nil {
		return view.Budgets{}, err
	}
	out := view.Budgets{Form: form}
	for _, b := range all {
		row := view.Budget{
			ID:      b.ID.String(),
			Name:    b.Project,
			Spent:   b.Spent,
			Held:    b.Committed - b.Spent,
			MaxRate: b.MaxRate,
			Cap:     b.Cap,
			Level:   b.Reached(),
			Left:    b.Left(),
		}
		if b.Project == "" {
			row.Name = "Whole organisation"
		}
		out.List = append(out.List, row)
	}
	return out, nil
}

// setBudget sets cap and highest price; the longest run, if one was set over REST, stays.
func (s *Web) setBudget(v *visit) error {
	form := view.BudgetForm{
		Project: strings.TrimSpace(v.r.FormValue("project")),
		Cap:     strings.TrimSpace(v.r.FormValue("cap")),
		MaxRate: strings.TrimSpace(v.r.FormValue("max_price_per_hour")),
	}
	l, err := limitsOf(form)
	if err == nil {
		_, _, err = s.Budgets.Set(v.r.Context(), v.who,
			budget.Change{Project: form.Project, Limits: l, KeepDuration: true}, idem.Request{})
	}
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			forms := untouched()
			forms.budget = form
			return s.showBilling(v, forms)
		})
	}
	return back(v, "/billing#budgets")
}

func limitsOf(f view.BudgetForm) (l budget.Limits, err error) {
	var bad fault.Fields
	if f.Cap != "" {
		n, err := money.ParseNano(f.Cap)
		if err != nil {
			bad.Add("cap", "%s", err)
		}
		l.Cap = &n
	}
	if f.MaxRate != "" {
		n, err := money.ParseMicro(f.MaxRate)
		if err != nil {
			bad.Add("max_price_per_hour", "%s", err)
		}
		l.MaxRate = &n
	}
	return l, bad.Err()
}

func (s *Web) removeBudget(v *visit) error {
	b, err := id.Parse[id.Budget](chi.URLParam(v.r, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "budget not found")
	}
	if err := s.Budgets.Remove(v.r.Context(), v.who, b); err != nil {
		return err
	}
	return back(v, "/billing#budgets")
}
