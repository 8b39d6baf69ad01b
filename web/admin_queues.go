package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/web/view"
)

func (s *Web) payoutRun(v *visit) error { return s.showPayoutRun(v, view.ActForm{}) }

func (s *Web) showPayoutRun(v *visit, form view.ActForm) error {
	ctx := v.r.Context()
	due, err := s.Payouts.Upcoming(ctx, v.who)
	if err != nil {
		return err
	}
	before, err := after[id.Payout](v)
	if err != nil {
		return err
	}
	list, err := s.Payouts.All(ctx, v.who, before, adminRows+1)
	if err != nil {
		return err
	}
	form.Once = newOnce()
	out := view.PayoutRun{Currency: s.Currency, Minimum: s.Payouts.Minimum(), Form: form}
	sending, err := s.Payments.Sending(ctx, v.who)
	if err != nil {
		return err
	}
	if out.Sending = (view.Sending{Paused: sending.Paused, Reason: sending.Reason}); sending.Since != nil {
		out.Sending.Since = view.Clock(*sending.Since, s.Now()) + " UTC"
	}
	out.Done = done(v, map[string]string{"paused": "Sending of money is paused.", "resumed": "Money is sent again."})
	if v.r.Method == http.MethodGet && v.r.FormValue("made") != "" {
		out.Done = "The run is over: " + v.r.FormValue("made") + " payouts were made. They are in the list."
	}
	for _, d := range due {
		row := view.DuePayout{Org: d.Org.String(), Name: d.OrgName, Payable: d.Payable, Amount: d.Amount, Why: d.Why}
		if d.NextAt != nil {
			row.Next = view.Clock(*d.NextAt, s.Now())
		}
		if d.Failures > 0 {
			row.Failed = fmt.Sprintf("%d in a row. %s", d.Failures, d.Failure)
		}
		if d.Amount > 0 {
			out.Sum, out.Count = out.Sum+d.Amount, out.Count+1
		}
		out.Due = append(out.Due, row)
	}
	if len(list) > adminRows {
		list = list[:adminRows]
		out.Next = older(v, list[adminRows-1].ID.String())
	}
	orgs := make([]id.Org, len(list))
	for i, x := range list {
		orgs[i] = x.Org
	}
	names, err := s.Statements.OrgNames(ctx, orgs)
	if err != nil {
		return err
	}
	out.Rows = payoutRows(list, names, s.Now())
	return s.render(v, view.PayoutRunPage(v.page("Payouts", "desk"), out))
}

// runPayouts pays everybody who can be paid now, each in a transaction of its own. A form that is sent twice runs once;
// a run that dies in the middle can be sent again and pays those who are left.
func (s *Web) runPayouts(v *visit) error {
	form := view.ActForm{Act: "run", Reason: strings.TrimSpace(v.r.FormValue("reason"))}
	made, _, err := s.Payouts.PayAll(v.r.Context(), v.who, form.Reason, v.once("reason"))
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showPayoutRun(v, form)
		})
	}
	return back(v, "/admin/payouts?"+url.Values{"made": {strconv.Itoa(len(made))}}.Encode())
}

// setSending pauses everything that moves money, or resumes it.
func (s *Web) setSending(v *visit) error {
	form := view.ActForm{Act: "sending", Reason: strings.TrimSpace(v.r.FormValue("reason"))}
	pause, word := v.r.FormValue("pause") != "no", "resumed"
	if pause {
		word = "paused"
	}
	_, _, err := s.Payments.SetSending(v.r.Context(), v.who, pause, form.Reason, v.once("pause", "reason"))
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showPayoutRun(v, form)
		})
	}
	return back(v, "/admin/payouts?done="+word+"#sending")
}

func (s *Web) reviews(v *visit) error { return s.showReviews(v, view.ActForm{}) }

func (s *Web) showReviews(v *visit, form view.ActForm) error {
	form.Once = newOnce()
	out := view.Reviews{
		All:  v.r.FormValue("all") != "",
		Form: form,
		Done: done(v, map[string]string{
			"release": "Released: it becomes payable as usual.",
			"refuse":  "Refused: it stays with the platform, and the operator is told why.",
		}),
	}
	before, err := after[id.PayoutReview](v)
	if err != nil {
		return err
	}
	rows, err := s.Payouts.ReviewsOf(v.r.Context(), v.who, payout.ReviewFilter{Waiting: !out.All}, before, adminRows+1)
	if err != nil {
		return err
	}
	if len(rows) > adminRows {
		rows = rows[:adminRows]
		out.Next = older(v, rows[adminRows-1].ID.String())
	}
	if out.Rows, err = s.reviewRows(v.r.Context(), rows); err != nil {
		return err
	}
	return s.render(v, view.ReviewsPage(v.page("Reviews", "desk"), out))
}

func (s *Web) reviewRows(ctx context.Context, list []payout.Review) ([]view.ReviewRow, error) {
	var orgs []id.Org
	for _, r := range list {
		orgs = append(orgs, r.Operator, r.Renter)
	}
	names, err := s.Statements.OrgNames(ctx, orgs)
	if err != nil {
		return nil, err
	}
	out := make([]view.ReviewRow, len(list))
	for i, r := range list {
		out[i] = view.ReviewRow{
			ID:           r.ID.String(),
			Operator:     r.Operator.String(),
			OperatorName: names[r.Operator],
			Renter:       r.Renter.String(),
			RenterName:   names[r.Renter],
			Reasons:      linkWords(r.Reasons),
			Since:        view.Clock(r.CreatedAt, s.Now()) + " UTC",
			Decision:     r.Decision,
			Currency:     r.Currency,
			InReview:     r.InReview,
			Released:     r.Released,
			Refused:      r.Refused,
			Advice:       string(r.Advice),
		}
		if r.DecidedAt != nil {
			out[i].Decided = view.Clock(*r.DecidedAt, s.Now()) + " UTC"
		}
	}
	return out, nil
}

// linkWords says what links a renter with an operator.
func linkWords(reasons []string) string {
	words := map[string]string{
		"member":       "one person in both",
		"vat_id":       "the same VAT id",
		"legal_name":   "the same legal name and address",
		"card":         "the same card",
		"lost_dispute": "a lost dispute",
	}
	said := make([]string, len(reasons))
	for i, r := range reasons {
		if said[i] = words[r]; said[i] == "" {
			said[i] = r
		}
	}
	return strings.Join(said, ", ")
}

func (s *Web) decideReview(v *visit, target string, once idem.Request) error {
	review, err := id.Parse[id.PayoutReview](target)
	if err != nil {
		return fault.New(fault.Conflict, "there is no such review")
	}
	switch v.r.FormValue("decision") {
	case "release":
		_, _, err = s.Payouts.ApproveReview(v.r.Context(), v.who, review, v.r.FormValue("reason"), once)
	case "refuse":
		_, _, err = s.Payouts.RefuseReview(v.r.Context(), v.who, review, v.r.FormValue("reason"), once)
	default:
		err = fault.New(fault.Invalid, "release it or refuse it")
	}
	return err
}

func (s *Web) decide(v *visit) error {
	form := view.ActForm{
		Act:    "review",
		Target: v.r.FormValue("review"),
		Reason: strings.TrimSpace(v.r.FormValue("reason")),
	}
	err := inForm(s.decideReview(v, form.Target, v.once("review", "decision", "reason")))
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showReviews(v, form)
		})
	}
	return back(v, "/admin/reviews?"+url.Values{"done": {v.r.FormValue("decision")}}.Encode())
}
