package web

import (
	"context"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/view"
)

// budgets are the org's, and the form as it was typed.
func (s *Web) budgets(v *visit) (view.Budgets, error) {
	all, err := budget.List(v.r.Context(), s.DB.Q, v.who.Org)
	if err != nil {
		return view.Budgets{}, err
	}
	out := view.Budgets{Form: v.budget}
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
	err := s.DB.InTx(v.r.Context(), func(ctx context.Context, tx *db.Tx) error {
		l, err := limitsOf(form)
		if err != nil {
			return err
		}
		all, err := budget.List(ctx, tx.Q, v.who.Org)
		if err != nil {
			return err
		}
		for _, b := range all {
			if b.Project == form.Project {
				l.MaxDuration = b.MaxDuration
			}
		}
		b, err := budget.Set(ctx, tx, v.who.Org, form.Project, s.Currency, l)
		if err != nil {
			return err
		}
		return audit.Record(ctx, tx, v.who.Event("budget.set", b.ID.String(), map[string]any{
			"project": form.Project,
			"cap":     form.Cap,
		}))
	})
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			v.budget = form
			return s.showBilling(v, view.TopUpForm{Amount: "100.00"}, nil)
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
		return fault.New(fault.NotFound, "no such budget")
	}
	err = s.DB.InTx(v.r.Context(), func(ctx context.Context, tx *db.Tx) error {
		gone, err := budget.Remove(ctx, tx, v.who.Org, b)
		if err != nil {
			return err
		}
		return audit.Record(ctx, tx, v.who.Event("budget.remove", b.String(), map[string]any{"project": gone.Project}))
	})
	if err != nil {
		return err
	}
	return back(v, "/billing#budgets")
}
