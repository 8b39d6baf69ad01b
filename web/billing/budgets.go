package billing

import (
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/page"
)

// budgets returns the organisation's budgets, and the form as typed.
func (s *Pages) budgets(v *page.Visit, form BudgetForm) (Budgets, error) {
	all, err := s.Budgets.List(v.R.Context(), v.Who)
	if err != nil {
		return Budgets{}, err
	}
	out := Budgets{Form: form}
	for _, b := range all {
		row := Budget{
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

// setBudget sets the cap and the highest price; it keeps a longest run that was set over REST.
func (s *Pages) setBudget(v *page.Visit) error {
	form := BudgetForm{
		Project: strings.TrimSpace(v.R.FormValue("project")),
		Cap:     strings.TrimSpace(v.R.FormValue("cap")),
		MaxRate: strings.TrimSpace(v.R.FormValue("max_price_per_hour")),
	}
	l, err := limitsOf(form)
	if err == nil {
		_, _, err = s.Budgets.Set(v.R.Context(), v.Who,
			budget.Change{Project: form.Project, Limits: l, KeepDuration: true}, idem.Request{})
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			forms := untouched()
			forms.tab, forms.budget = "budgets", form
			return s.showBilling(v, forms)
		})
	}
	return page.Back(v, "/billing?tab=budgets#budgets")
}

func limitsOf(f BudgetForm) (l budget.Limits, err error) {
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

func (s *Pages) removeBudget(v *page.Visit) error {
	b, err := id.Parse[id.Budget](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "budget not found")
	}
	if err := s.Budgets.Remove(v.R.Context(), v.Who, b); err != nil {
		return err
	}
	return page.Back(v, "/billing?tab=budgets#budgets")
}
