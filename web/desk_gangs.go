package web

import (
	"context"
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/view"
)

// gangDays are the spans that the desk's page of gangs offers.
var gangDays = []int{1, 7, 30, 90, 366}

func (s *Web) gangs(v *visit) error { return s.showGangs(v, view.ActForm{}) }

func (s *Web) showGangs(v *visit, form view.ActForm) error {
	ctx := v.r.Context()
	out := view.Gangs{Days: 30, Spans: gangDays, Form: form, Now: s.Now().UTC(),
		Done: done(v, map[string]string{"approve": "The credit is booked.", "refuse": "The credit is refused."})}
	if n, err := strconv.Atoi(v.r.FormValue("days")); err == nil && n >= 1 && n <= 366 {
		out.Days = n
	}
	out.Form.Once = newOnce()
	var err error
	if out.Gangs, err = statement.GangsOf(ctx, s.DB.Q, v.who, out.Days); err != nil {
		return err
	}
	if out.Held, err = metering.HeldCredits(ctx, s.DB.Q, v.who); err != nil {
		return err
	}
	var orgs []id.Org
	for _, x := range out.Gangs.Strikes {
		orgs = append(orgs, x.Org)
	}
	for _, x := range out.Gangs.Relief {
		orgs = append(orgs, x.Org)
	}
	for _, x := range out.Held {
		orgs = append(orgs, x.Renter, x.Operator)
	}
	if out.Names, err = statement.OrgNames(ctx, s.DB.Q, orgs); err != nil {
		return err
	}
	return s.render(v, view.GangsPage(v.page("Gangs", "desk"), out))
}

// decideHeldCredit approves or refuses the credit of a lease.
func (s *Web) decideHeldCredit(v *visit) error {
	form := view.ActForm{Act: "credit", Target: v.r.FormValue("lease"), Reason: strings.TrimSpace(v.r.FormValue("reason"))}
	decision := v.r.FormValue("decision")
	err := s.act(v, func(ctx context.Context, tx *db.Tx) error {
		lease, err := id.Parse[id.Lease](form.Target)
		if err != nil || lease.IsZero() {
			return fault.New(fault.Conflict, "there is no such lease")
		}
		if decision != "approve" && decision != "refuse" {
			return fault.New(fault.Invalid, "approve it or refuse it")
		}
		if form.Reason == "" {
			return fault.InvalidField("reason", "is missing: the audit trail keeps it")
		}
		return metering.DecideCredit(ctx, tx, v.who, lease, decision == "approve", form.Reason)
	}, "lease", "decision")
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showGangs(v, form)
		})
	}
	return back(v, "/admin/gangs?done="+decision)
}
