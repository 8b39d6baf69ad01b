package admin

import (
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
)

// gangDays are the periods that the page offers, in days.
var gangDays = []int{1, 7, 30, 90, 366}

// gangPages are the money of gangs.
type gangPages struct {
	*page.Site
}

func (s *gangPages) gangs(v *page.Visit) error { return s.showGangs(v, ActForm{}) }

func (s *gangPages) showGangs(v *page.Visit, form ActForm) error {
	ctx := v.R.Context()
	out := Gangs{Days: 30, Spans: gangDays, Form: form, Now: s.Now().UTC(),
		Done: page.Done(v, map[string]string{"approve": "The credit is booked.", "refuse": "The credit is refused."})}
	if n, err := strconv.Atoi(v.R.FormValue("days")); err == nil && n >= 1 && n <= 366 {
		out.Days = n
	}
	out.Form.Once = page.NewOnce()
	var err error
	if out.Gangs, err = s.Statements.GangsOf(ctx, v.Who, out.Days); err != nil {
		return err
	}
	if out.Held, err = s.Leases.HeldCredits(ctx, v.Who); err != nil {
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
	return s.Render(v, GangsPage(v.Page("Gangs", "admin"), out))
}

// decideHeldCredit approves or refuses the credit of a lease.
func (s *gangPages) decideHeldCredit(v *page.Visit) error {
	form := ActForm{Act: "credit", Target: v.R.FormValue("lease"), Reason: strings.TrimSpace(v.R.FormValue("reason"))}
	decision := v.R.FormValue("decision")
	lease, err := id.Parse[id.Lease](form.Target)
	switch {
	case err != nil || lease.IsZero():
		err = fault.New(fault.Conflict, "lease not found")
	case decision != "approve" && decision != "refuse":
		err = fault.New(fault.Invalid, "approve it or refuse it")
	case form.Reason == "":
		err = fault.InvalidField("reason", "is missing: the audit log keeps it")
	default:
		_, _, err = s.Leases.DecideCredit(v.R.Context(), v.Who, lease, decision == "approve", form.Reason,
			v.Once("lease", "decision", "reason"))
		err = inForm(err)
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showGangs(v, form)
		})
	}
	return page.Back(v, "/admin/gangs?done="+decision)
}
