package admin

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/billing/postpaid"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/hosts"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// rowsOfOrg is how many payouts, redemptions and audit events an organisation's page shows.
const rowsOfOrg = 20

// orgPages are organisations, and what staff do to them.
type orgPages struct {
	*page.Site
	ledger   *ledgerPages
	payouts  *payoutPages
	postpaid *postpaidPages
}

func (s *orgPages) orgs(v *page.Visit) error {
	out := Orgs{
		Query:     strings.TrimSpace(v.R.FormValue("q")),
		Operators: v.R.FormValue("operators") != "",
		Currency:  s.Currency,
	}
	before, err := page.After[id.Org](v)
	if err != nil {
		return err
	}
	rows, err := s.Statements.Orgs(v.R.Context(), v.Who, statement.OrgSearch{
		Words:     out.Query,
		Operators: out.Operators,
		Disputed:  v.R.FormValue("disputed") != "",
	}, before, page.AdminRows+1)
	if err != nil {
		return err
	}
	if len(rows) > page.AdminRows {
		rows = rows[:page.AdminRows]
		out.Next = page.Older(v, rows[page.AdminRows-1].ID.String())
	}
	out.Rows = rows
	return s.Render(v, OrgsPage(v.Page("Organisations", "admin"), out))
}

func (s *orgPages) orgPage(v *page.Visit) error { return s.showOrg(v, ActForm{}) }

// pathOrg returns the organisation in the URL.
func pathOrg(v *page.Visit) (id.Org, error) {
	org, err := id.Parse[id.Org](chi.URLParam(v.R, "id"))
	if err != nil || org.IsZero() {
		return org, fault.New(fault.NotFound, "organisation not found")
	}
	return org, nil
}

func (s *orgPages) showOrg(v *page.Visit, form ActForm) error {
	ctx := v.R.Context()
	org, err := pathOrg(v)
	if err != nil {
		return err
	}
	form.Once = page.NewOnce()
	all := v.R.FormValue("clusters") == "all"
	out := OneOrg{Form: form, Now: s.Now(), AllClusters: all, Done: page.Done(v, map[string]string{
		"fee":  "The fee is set for new leases. The operator was notified of the reason.",
		"pay":  "A payout was made. It is in the list.",
		"stop": "Done. The operator was notified of the reason.",
		"reverse": "Stripe is asked to take it back. The list shows what becomes of it, and payouts to the operator are " +
			"stopped.",
		"unfreeze": "The lease is unfrozen. The host's operator was notified of the reason.",
		"review":   "Decided.",
		"release":  "The hosts are paid what they earned, as usual.",
		"forgive":  "The lost disputes no longer count towards a suspension.",
		"bank":     "The transfer is booked.",
		"writeoff": "The invoice is given up. It is booked when Stripe has it as uncollectible.",
	})}
	if out.OrgDetail, err = s.Statements.OneOrg(ctx, v.Who, org); err != nil {
		return err
	}
	if out.FeePPM, err = s.Market.Fee(ctx, org); err != nil {
		return err
	}
	renter, err := s.Payments.Standings.Of(ctx, org)
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
	next, err := s.Payouts.Next(ctx, v.Who, org)
	if err != nil {
		return err
	}
	out.Account, out.Why = hosts.ViewAccount(next.Account), next.Why
	if next.Amount > 0 {
		out.CanPay = view.CentsDown(next.Amount)
	}
	if next.NextAt != nil {
		out.Next = next.NextAt.UTC().Format("Mon 2 Jan, 15:04 UTC")
	}
	list, err := s.Payouts.List(ctx, v.Who, org, id.Payout{}, rowsOfOrg)
	if err != nil {
		return err
	}
	out.Payouts = hosts.PayoutRows(list, nil, s.Now())
	reviews, err := s.Payouts.ReviewsOf(ctx, v.Who, payout.ReviewFilter{Org: org}, id.PayoutReview{}, rowsOfOrg)
	if err != nil {
		return err
	}
	if out.Reviews, err = s.payouts.reviewRows(ctx, reviews); err != nil {
		return err
	}
	frozen, err := s.ledger.frozen(v)
	if err != nil {
		return err
	}
	for _, f := range frozen {
		if f.Operator == org.String() {
			out.Frozen = append(out.Frozen, f)
		}
	}
	if err := s.postpaid.invoicesOf(ctx, v, org, &out); err != nil {
		return err
	}
	if out.Redemptions, err = s.Payments.PromoCodes.Redemptions(ctx, v.Who, "", org, "", rowsOfOrg); err != nil {
		return err
	}
	trail, err := s.Statements.SearchAudit(ctx, v.Who, audit.Filter{Org: org}, id.Audit{}, rowsOfOrg)
	if err != nil {
		return err
	}
	out.Trail = s.AuditRows(trail)
	return s.Render(v, OneOrgPage(v.Page(out.Name, "admin"), out))
}

// onOrg runs the action of a form on an organisation's page and shows the page again, with what is wrong or with what
// was done.
func (s *orgPages) onOrg(v *page.Visit, form ActForm, do func(org id.Org, once idem.Request) error,
	fields ...string) error {
	org, err := pathOrg(v)
	if err != nil {
		return err
	}
	form.Reason = strings.TrimSpace(v.R.FormValue("reason"))
	if err := inForm(do(org, v.Once(append(fields, "reason")...))); err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showOrg(v, form)
		})
	}
	return page.Back(v, "/admin/orgs/"+org.String()+"?"+url.Values{"done": {form.Act}}.Encode())
}

func (s *orgPages) setFee(v *page.Visit) error {
	form := ActForm{Act: "fee", Value: strings.TrimSpace(v.R.FormValue("fee_percent"))}
	return s.onOrg(v, form, func(org id.Org, once idem.Request) error {
		ppm, err := parsePercent(form.Value)
		if err != nil {
			return err
		}
		return s.changeOperator(v, org, payout.OperatorChange{FeePPM: &ppm}, once)
	}, "fee_percent")
}

// percentOf returns parts per million as a percentage without trailing zeros, such as "4.5" for 45,000.
func percentOf(ppm int) string {
	return strconv.FormatFloat(float64(ppm)/10_000, 'f', -1, 64)
}

// parsePercent returns a percentage from 0 to 100 with at most four decimals as parts per million.
func parsePercent(s string) (ppm int, err error) {
	n, err := money.ParseMicro(s)
	if err != nil || n < 0 || n > 100_000_000 || n%100 != 0 {
		return 0, fault.InvalidField("fee_percent",
			"Enter a percentage from 0 to 100 with at most four decimals, such as 4.5.")
	}
	return int(n / 100), nil
}

func (s *orgPages) changeOperator(v *page.Visit, org id.Org, c payout.OperatorChange, once idem.Request) error {
	c.Reason = v.R.FormValue("reason")
	_, _, err := s.Payouts.ChangeOperator(v.R.Context(), v.Who, s.Market, org, c, once)
	return err
}

func (s *orgPages) payOrg(v *page.Visit) error {
	return s.onOrg(v, ActForm{Act: "pay"}, func(org id.Org, once idem.Request) error {
		_, _, err := s.Payouts.PayNow(v.R.Context(), v.Who, org, v.R.FormValue("reason"), once)
		return err
	})
}

func (s *orgPages) reversePayout(v *page.Visit) error {
	form := ActForm{
		Act:    "reverse",
		Target: v.R.FormValue("payout"),
		Value:  strings.TrimSpace(v.R.FormValue("amount")),
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
		_, _, err = s.Payouts.Reverse(v.R.Context(), v.Who, payout.ReversalRequest{
			Payout: what,
			Org:    org,
			Amount: amount,
			Reason: v.R.FormValue("reason"),
		}, once)
		return err
	}, "payout", "amount")
}

func (s *orgPages) stopOrg(v *page.Visit) error {
	return s.onOrg(v, ActForm{Act: "stop"}, func(org id.Org, once idem.Request) error {
		stop := v.R.FormValue("stop") != "no"
		return s.changeOperator(v, org, payout.OperatorChange{Stopped: &stop}, once)
	}, "stop")
}

func (s *orgPages) unfreezeOrg(v *page.Visit) error {
	form := ActForm{Act: "unfreeze", Target: v.R.FormValue("lease")}
	return s.onOrg(v, form, func(_ id.Org, once idem.Request) error {
		lease, err := id.Parse[id.Lease](form.Target)
		if err != nil {
			return fault.New(fault.Conflict, "there is no such lease")
		}
		_, _, err = s.Leases.Unfreeze(v.R.Context(), v.Who, lease, v.R.FormValue("reason"), once)
		return err
	}, "lease")
}

func (s *orgPages) reviewOfOrg(v *page.Visit) error {
	form := ActForm{Act: "review", Target: v.R.FormValue("review")}
	return s.onOrg(v, form, func(_ id.Org, once idem.Request) error {
		return s.payouts.decideReview(v, form.Target, once)
	}, "review", "decision")
}

func (s *orgPages) releaseRefund(v *page.Visit) error {
	form := ActForm{Act: "release", Target: strings.TrimSpace(v.R.FormValue("refund"))}
	return s.onOrg(v, form, func(_ id.Org, once idem.Request) error {
		_, _, err := s.Payments.Refunds.Approve(v.R.Context(), v.Who, form.Target, v.R.FormValue("reason"), once)
		return err
	}, "refund")
}

func (s *orgPages) forgiveDisputes(v *page.Visit) error {
	return s.onOrg(v, ActForm{Act: "forgive"}, func(org id.Org, once idem.Request) error {
		_, _, err := s.Payments.Standings.Forgive(v.R.Context(), v.Who, org, v.R.FormValue("reason"), once)
		return err
	})
}

// bankPayment records that the part of an invoice that was lost in a dispute was paid by bank transfer.
func (s *orgPages) bankPayment(v *page.Visit) error {
	f := func(name string) string { return strings.TrimSpace(v.R.FormValue(name)) }
	form := ActForm{Act: "bank", Target: f("invoice"), Value: f("amount"), Reference: f("reference")}
	return s.onOrg(v, form, func(org id.Org, once idem.Request) error {
		amount, err := money.ParseNano(form.Value)
		if err != nil {
			return fault.InvalidField("amount", "%s", err)
		}
		_, _, err = s.Postpaid.BookBankPayment(v.R.Context(), v.Who, org, form.Target, postpaid.BankPayment{
			Amount:    amount,
			Reference: form.Reference,
			Reason:    f("reason"),
		}, once)
		return err
	}, "amount", "reference")
}

// writeOff writes off an invoice that the card did not pay.
func (s *orgPages) writeOff(v *page.Visit) error {
	form := ActForm{Act: "writeoff", Target: strings.TrimSpace(v.R.FormValue("invoice"))}
	return s.onOrg(v, form, func(org id.Org, once idem.Request) error {
		_, _, err := s.Postpaid.WriteOff(v.R.Context(), v.Who, org, form.Target, v.R.FormValue("reason"), once)
		return err
	}, "invoice")
}
