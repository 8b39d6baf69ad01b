package admin

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
	"github.com/musterhq/muster/web/hosts"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// payoutPages are the runs of payouts, and their reviews.
type payoutPages struct {
	*page.Site
}

func (s *payoutPages) payoutRun(v *page.Visit) error { return s.showPayoutRun(v, ActForm{}) }

func (s *payoutPages) showPayoutRun(v *page.Visit, form ActForm) error {
	ctx := v.R.Context()
	due, err := s.Payouts.Upcoming(ctx, v.Who)
	if err != nil {
		return err
	}
	before, err := page.After[id.Payout](v)
	if err != nil {
		return err
	}
	list, err := s.Payouts.All(ctx, v.Who, before, page.AdminRows+1)
	if err != nil {
		return err
	}
	form.Once = page.NewOnce()
	out := PayoutRun{Currency: s.Currency, Minimum: s.Payouts.Minimum(), Form: form}
	sending, err := s.Outbox.Sending(ctx, v.Who)
	if err != nil {
		return err
	}
	if out.Sending = (Sending{Paused: sending.Paused, Reason: sending.Reason}); sending.Since != nil {
		out.Sending.Since = view.Clock(*sending.Since, s.Now()) + " UTC"
	}
	out.Done = page.Done(v, map[string]string{"paused": "Sending of money is paused.", "resumed": "Money is sent again."})
	if v.R.Method == http.MethodGet && v.R.FormValue("made") != "" {
		out.Done = "The run is over: " + v.R.FormValue("made") + " payouts were made. They are in the list."
	}
	for _, d := range due {
		row := DuePayout{Org: d.Org.String(), Name: d.OrgName, Payable: d.Payable, Amount: d.Amount, Why: d.Why}
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
	if len(list) > page.AdminRows {
		list = list[:page.AdminRows]
		out.Next = page.Older(v, list[page.AdminRows-1].ID.String())
	}
	orgs := make([]id.Org, len(list))
	for i, x := range list {
		orgs[i] = x.Org
	}
	names, err := s.Statements.OrgNames(ctx, orgs)
	if err != nil {
		return err
	}
	out.Rows = hosts.PayoutRows(list, names, s.Now())
	return s.Render(v, PayoutRunPage(v.Page("Payouts", "admin"), out))
}

// runPayouts pays every operator who can be paid now, each in its own transaction. A form that is sent twice runs once;
// after a crash in the middle it can be sent again, and pays those who are left.
func (s *payoutPages) runPayouts(v *page.Visit) error {
	form := ActForm{Act: "run", Reason: strings.TrimSpace(v.R.FormValue("reason"))}
	made, _, err := s.Payouts.PayAll(v.R.Context(), v.Who, form.Reason, v.Once("reason"))
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showPayoutRun(v, form)
		})
	}
	return page.Back(v, "/admin/payouts?"+url.Values{"made": {strconv.Itoa(len(made))}}.Encode())
}

// setSending pauses or resumes everything that moves money at Stripe.
func (s *payoutPages) setSending(v *page.Visit) error {
	form := ActForm{Act: "sending", Reason: strings.TrimSpace(v.R.FormValue("reason"))}
	pause, word := v.R.FormValue("pause") != "no", "resumed"
	if pause {
		word = "paused"
	}
	_, _, err := s.Outbox.SetSending(v.R.Context(), v.Who, pause, form.Reason, v.Once("pause", "reason"))
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showPayoutRun(v, form)
		})
	}
	return page.Back(v, "/admin/payouts?done="+word+"#sending")
}

func (s *payoutPages) reviews(v *page.Visit) error { return s.showReviews(v, ActForm{}) }

func (s *payoutPages) showReviews(v *page.Visit, form ActForm) error {
	form.Once = page.NewOnce()
	out := Reviews{
		All:  v.R.FormValue("all") != "",
		Form: form,
		Done: page.Done(v, map[string]string{
			"release": "Released: it becomes payable as usual.",
			"refuse":  "Refused: the platform keeps it. The operator was notified of the reason.",
		}),
	}
	before, err := page.After[id.PayoutReview](v)
	if err != nil {
		return err
	}
	rows, err := s.Payouts.ReviewsOf(v.R.Context(), v.Who, payout.ReviewFilter{Waiting: !out.All}, before, page.AdminRows+
		1)
	if err != nil {
		return err
	}
	if len(rows) > page.AdminRows {
		rows = rows[:page.AdminRows]
		out.Next = page.Older(v, rows[page.AdminRows-1].ID.String())
	}
	if out.Rows, err = s.reviewRows(v.R.Context(), rows); err != nil {
		return err
	}
	return s.Render(v, ReviewsPage(v.Page("Reviews", "admin"), out))
}

func (s *payoutPages) reviewRows(ctx context.Context, list []payout.Review) ([]ReviewRow, error) {
	var orgs []id.Org
	for _, r := range list {
		orgs = append(orgs, r.Operator, r.Renter)
	}
	names, err := s.Statements.OrgNames(ctx, orgs)
	if err != nil {
		return nil, err
	}
	out := make([]ReviewRow, len(list))
	for i, r := range list {
		out[i] = ReviewRow{
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

// linkWords describes what links a renter with an operator.
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

func (s *payoutPages) decideReview(v *page.Visit, target string, once idem.Request) error {
	review, err := id.Parse[id.PayoutReview](target)
	if err != nil {
		return fault.New(fault.Conflict, "there is no such review")
	}
	switch v.R.FormValue("decision") {
	case "release":
		_, _, err = s.Payouts.ApproveReview(v.R.Context(), v.Who, review, v.R.FormValue("reason"), once)
	case "refuse":
		_, _, err = s.Payouts.RefuseReview(v.R.Context(), v.Who, review, v.R.FormValue("reason"), once)
	default:
		err = fault.New(fault.Invalid, "release it or refuse it")
	}
	return err
}

func (s *payoutPages) decide(v *page.Visit) error {
	form := ActForm{
		Act:    "review",
		Target: v.R.FormValue("review"),
		Reason: strings.TrimSpace(v.R.FormValue("reason")),
	}
	err := inForm(s.decideReview(v, form.Target, v.Once("review", "decision", "reason")))
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showReviews(v, form)
		})
	}
	return page.Back(v, "/admin/reviews?"+url.Values{"done": {v.R.FormValue("decision")}}.Encode())
}
