package web

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/view"
)

// rowsOfOrg is how many payouts, uses and acts an organisation's page shows.
const rowsOfOrg = 20

func (s *Web) orgs(v *visit) error {
	out := view.Orgs{
		Query:     strings.TrimSpace(v.r.FormValue("q")),
		Operators: v.r.FormValue("operators") != "",
		Currency:  s.Currency,
	}
	before, err := after[id.Org](v)
	if err != nil {
		return err
	}
	rows, err := s.Statements.Orgs(v.r.Context(), v.who, statement.OrgSearch{
		Words:     out.Query,
		Operators: out.Operators,
		Disputed:  v.r.FormValue("disputed") != "",
	}, before, adminRows+1)
	if err != nil {
		return err
	}
	if len(rows) > adminRows {
		rows = rows[:adminRows]
		out.Next = older(v, rows[adminRows-1].ID.String())
	}
	out.Rows = rows
	return s.render(v, view.OrgsPage(v.page("Organisations", "desk"), out))
}

func (s *Web) orgPage(v *visit) error { return s.showOrg(v, view.ActForm{}) }

// pathOrg is the organisation that the address names.
func pathOrg(v *visit) (id.Org, error) {
	org, err := id.Parse[id.Org](chi.URLParam(v.r, "id"))
	if err != nil || org.IsZero() {
		return org, fault.New(fault.NotFound, "there is no such organisation")
	}
	return org, nil
}

func (s *Web) showOrg(v *visit, form view.ActForm) error {
	ctx := v.r.Context()
	org, err := pathOrg(v)
	if err != nil {
		return err
	}
	form.Once = newOnce()
	out := view.OneOrg{Form: form, Now: s.Now(), Done: done(v, map[string]string{
		"fee":  "The fee is set, for new leases. The operator is told why.",
		"pay":  "A payout was made. It is in the list.",
		"stop": "Done. The operator is told why.",
		"reverse": "Stripe is asked to take it back. The list shows what becomes of it, and payouts to the operator are " +
			"stopped.",
		"unfreeze": "The lease's money moves again. The host's operator is told why.",
		"review":   "Decided.",
		"release":  "The hosts are paid what they earned, as usual.",
		"forgive":  "The lost disputes no longer count towards a suspension.",
		"bank":     "The transfer is booked.",
		"writeoff": "The invoice is given up. It is booked when Stripe has it as uncollectible.",
	})}
	if out.OrgDetail, err = s.Statements.OneOrg(ctx, v.who, org); err != nil {
		return err
	}
	if out.FeePPM, err = s.Market.Fee(ctx, org); err != nil {
		return err
	}
	renter, err := s.Payments.Standing(ctx, org)
	if err != nil {
		return err
	}
	out.Standing = string(renter.State)
	earned, err := s.Payouts.Standing(ctx, org)
	if err != nil {
		return err
	}
	out.Pending, out.InReview, out.Payable, out.Disputed = view.Cents(earned.Pending), view.Cents(earned.InReview),
		view.Cents(earned.Payable), view.Cents(earned.Disputed)
	out.Sending, out.Paid = view.Cents(earned.Sending), view.Cents(earned.Paid)
	next, err := s.Payouts.Next(ctx, v.who, org)
	if err != nil {
		return err
	}
	out.Account, out.Why = payoutAccount(next.Account), next.Why
	if next.Amount > 0 {
		out.CanPay = view.Cents(next.Amount)
	}
	if next.NextAt != nil {
		out.Next = next.NextAt.UTC().Format("Mon 2 Jan, 15:04 UTC")
	}
	list, err := s.Payouts.List(ctx, v.who, org, id.Payout{}, rowsOfOrg)
	if err != nil {
		return err
	}
	out.Payouts = payoutRows(list, nil, s.Now())
	reviews, err := s.Payouts.ReviewsOf(ctx, v.who, payout.ReviewFilter{Org: org}, id.PayoutReview{}, rowsOfOrg)
	if err != nil {
		return err
	}
	if out.Reviews, err = s.reviewRows(ctx, reviews); err != nil {
		return err
	}
	frozen, err := s.frozen(v)
	if err != nil {
		return err
	}
	for _, f := range frozen {
		if f.Operator == org.String() {
			out.Frozen = append(out.Frozen, f)
		}
	}
	if err := s.invoicesOf(ctx, v, org, &out); err != nil {
		return err
	}
	if out.Redemptions, err = s.Payments.Redemptions(ctx, v.who, "", org, "", rowsOfOrg); err != nil {
		return err
	}
	trail, err := s.Statements.SearchAudit(ctx, v.who, audit.Filter{Org: org}, id.Audit{}, rowsOfOrg)
	if err != nil {
		return err
	}
	out.Trail = s.auditRows(trail)
	return s.render(v, view.OneOrgPage(v.page(out.Name, "desk"), out))
}

// onOrg does what a form of an organisation's page asks for, and shows the page again: with what is wrong, or with what
// was done.
func (s *Web) onOrg(v *visit, form view.ActForm, do func(org id.Org, once idem.Request) error,
	fields ...string) error {
	org, err := pathOrg(v)
	if err != nil {
		return err
	}
	form.Reason = strings.TrimSpace(v.r.FormValue("reason"))
	if err := inForm(do(org, v.once(append(fields, "reason")...))); err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showOrg(v, form)
		})
	}
	return back(v, "/admin/orgs/"+org.String()+"?"+url.Values{"done": {form.Act}}.Encode())
}

func (s *Web) setFee(v *visit) error {
	form := view.ActForm{Act: "fee", Value: strings.TrimSpace(v.r.FormValue("fee_ppm"))}
	return s.onOrg(v, form, func(org id.Org, once idem.Request) error {
		ppm, err := strconv.Atoi(strings.ReplaceAll(form.Value, ",", ""))
		if err != nil {
			return fault.InvalidField("fee_ppm", "is a whole number of millionths, 0 to 1000000")
		}
		return s.changeOperator(v, org, payout.OperatorChange{FeePPM: &ppm}, once)
	}, "fee_ppm")
}

func (s *Web) changeOperator(v *visit, org id.Org, c payout.OperatorChange, once idem.Request) error {
	c.Reason = v.r.FormValue("reason")
	_, _, err := s.Payouts.ChangeOperator(v.r.Context(), v.who, s.Market, org, c, once)
	return err
}

func (s *Web) payOrg(v *visit) error {
	return s.onOrg(v, view.ActForm{Act: "pay"}, func(org id.Org, once idem.Request) error {
		_, _, err := s.Payouts.PayNow(v.r.Context(), v.who, org, v.r.FormValue("reason"), once)
		return err
	})
}

func (s *Web) reversePayout(v *visit) error {
	form := view.ActForm{
		Act:    "reverse",
		Target: v.r.FormValue("payout"),
		Value:  strings.TrimSpace(v.r.FormValue("amount")),
	}
	return s.onOrg(v, form, func(org id.Org, once idem.Request) error {
		what, err := id.Parse[id.Payout](form.Target)
		if err != nil {
			return fault.InvalidField("payout", "is none of the list's")
		}
		var amount money.Nano
		if form.Value != "" {
			if amount, err = money.ParseNano(form.Value); err != nil || amount <= 0 {
				return fault.InvalidField("amount", "is a decimal above zero, or empty for all that is left")
			}
		}
		_, _, err = s.Payouts.Reverse(v.r.Context(), v.who, payout.ReversalRequest{
			Payout: what,
			Org:    org,
			Amount: amount,
			Reason: v.r.FormValue("reason"),
		}, once)
		return err
	}, "payout", "amount")
}

func (s *Web) stopOrg(v *visit) error {
	return s.onOrg(v, view.ActForm{Act: "stop"}, func(org id.Org, once idem.Request) error {
		stop := v.r.FormValue("stop") != "no"
		return s.changeOperator(v, org, payout.OperatorChange{Stopped: &stop}, once)
	}, "stop")
}

func (s *Web) unfreezeOrg(v *visit) error {
	form := view.ActForm{Act: "unfreeze", Target: v.r.FormValue("lease")}
	return s.onOrg(v, form, func(_ id.Org, once idem.Request) error {
		lease, err := id.Parse[id.Lease](form.Target)
		if err != nil {
			return fault.New(fault.Conflict, "there is no such lease")
		}
		_, _, err = s.Leases.Unfreeze(v.r.Context(), v.who, lease, v.r.FormValue("reason"), once)
		return err
	}, "lease")
}

func (s *Web) reviewOfOrg(v *visit) error {
	form := view.ActForm{Act: "review", Target: v.r.FormValue("review")}
	return s.onOrg(v, form, func(_ id.Org, once idem.Request) error {
		return s.decideReview(v, form.Target, once)
	}, "review", "decision")
}

func (s *Web) releaseRefund(v *visit) error {
	form := view.ActForm{Act: "release", Target: strings.TrimSpace(v.r.FormValue("refund"))}
	return s.onOrg(v, form, func(_ id.Org, once idem.Request) error {
		_, _, err := s.Payments.ApproveRefund(v.r.Context(), v.who, form.Target, v.r.FormValue("reason"), once)
		return err
	}, "refund")
}

func (s *Web) forgiveDisputes(v *visit) error {
	return s.onOrg(v, view.ActForm{Act: "forgive"}, func(org id.Org, once idem.Request) error {
		_, _, err := s.Payments.Forgive(v.r.Context(), v.who, org, v.r.FormValue("reason"), once)
		return err
	})
}
