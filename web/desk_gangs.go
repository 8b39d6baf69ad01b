package web

import (
	"strconv"
	"strings"

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
	if out.Gangs, err = s.Statements.GangsOf(ctx, v.who, out.Days); err != nil {
		return err
	}
	if out.Held, err = s.Leases.HeldCredits(ctx, v.who); err != nil {
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
	if out.Names, err = s.Statements.OrgNames(ctx, orgs); err != nil {
		return err
	}
	return s.render(v, view.GangsPage(v.page("Gangs", "desk"), out))
}

// decideHeldCredit approves or refuses the credit of a lease.
func (s *Web) decideHeldCredit(v *visit) error {
	form := view.ActForm{Act: "credit", Target: v.r.FormValue("lease"), Reason: strings.TrimSpace(v.r.FormValue("reason"))}
	decision := v.r.FormValue("decision")
	lease, err := id.Parse[id.Lease](form.Target)
	switch {
	case err != nil || lease.IsZero():
		err = fault.New(fault.Conflict, "lease not found")
	case decision != "approve" && decision != "refuse":
		err = fault.New(fault.Invalid, "approve it or refuse it")
	case form.Reason == "":
		err = fault.InvalidField("reason", "is missing: the audit log keeps it")
	default:
		_, _, err = s.Leases.DecideCredit(v.r.Context(), v.who, lease, decision == "approve", form.Reason,
			v.once("lease", "decision", "reason"))
		err = inForm(err)
	}
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showGangs(v, form)
		})
	}
	return back(v, "/admin/gangs?done="+decision)
}
