package hosts

import (
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// payoutsShown is how many of the last payouts the page shows.
const payoutsShown = 50

func (s *Pages) payoutsPage(v *page.Visit) error {
	if v.R.URL.Query().Has("returned") { // back from Stripe's form: apply at once what was entered there
		if err := s.Payouts.RefreshAccount(v.R.Context(), v.Who.Org); err != nil {
			s.Log.WarnContext(v.R.Context(), "a payout account cannot be asked about now", "org", v.Who.Org, "err", err)
		}
	}
	return s.showPayouts(v, PayoutForm{})
}

func (s *Pages) showPayouts(v *page.Visit, form PayoutForm) error {
	ctx := v.R.Context()
	standing, err := s.Payouts.Standing(ctx, v.Who.Org)
	if err != nil {
		return err
	}
	where, err := s.Payouts.Account(ctx, v.Who.Org)
	if err != nil {
		return err
	}
	list, err := s.Payouts.List(ctx, v.Who, v.Who.Org, id.Payout{}, payoutsShown)
	if err != nil {
		return err
	}
	out := Payouts{
		Currency:  standing.Currency,
		Pending:   standing.Pending,
		NotBooked: standing.NotBooked,
		Payable:   standing.Payable,
		Sending:   standing.Sending,
		Paid:      standing.Paid,
		Disputed:  standing.Disputed,
		InReview:  standing.InReview,
		Frozen:    len(standing.Frozen),
		Minimum:   s.Payouts.Minimum(),
		Holdback:  days(standing.Holdback),
		Account:   ViewAccount(where),
		Form:      form,
	}
	if where.NextAt != nil {
		out.Next = where.NextAt.UTC().Format("Mon 2 Jan, 15:04 UTC")
	}
	out.Rows = PayoutRows(list, nil, s.Now())
	return s.Render(v, PayoutsPage(v.Page("Payouts", "hosts"), out))
}

// days formats a holdback.
func days(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == day:
		return "a day"
	case d >= day && d%day == 0:
		return strconv.Itoa(int(d/day)) + " days"
	}
	return d.String()
}

func payoutState(x payout.Payout) view.State {
	switch {
	case x.State == payout.Failed:
		return view.State{Word: "Failed", Icon: "error", Tone: "bad"}
	case x.State == payout.Pending:
		return view.State{Word: "On its way", Icon: "info", Tone: "live"}
	case x.Reversal != nil && x.Reversal.State == payout.ReversalRequested:
		return view.State{Word: "Being taken back", Icon: "info", Tone: "live"}
	case x.Reversal != nil:
		return view.State{Word: "Not taken back", Icon: "error", Tone: "bad"}
	case x.Reversed == x.Amount:
		return view.State{Word: "Taken back", Icon: "warn", Tone: "warn"}
	case x.Reversed > 0:
		return view.State{Word: "Partly taken back", Icon: "warn", Tone: "warn"}
	}
	return view.State{Word: "Paid", Icon: "check", Tone: "ok"}
}

func ViewAccount(a payout.Account) PayoutAccount {
	out := PayoutAccount{
		Country: a.Country,
		Why:     a.Failure,
		Stopped: a.Stopped,
		Known:   a.State != payout.NoAccount && a.State != payout.Refused,
	}
	switch a.State {
	case payout.NoAccount:
		out.State, out.Do = view.State{Word: "Not set up", Icon: "warn", Tone: "warn"}, "Set up payouts"
	case payout.Making:
		out.State, out.Do = view.State{Word: "Being created", Icon: "info", Tone: "live"}, "Continue"
	case payout.Refused:
		out.State, out.Do = view.State{Word: "Refused", Icon: "error", Tone: "bad"}, "Try again"
	case payout.Incomplete:
		out.State, out.Do = view.State{Word: "Something is missing", Icon: "warn", Tone: "warn"}, "Continue at Stripe"
	case payout.Checking:
		out.State = view.State{Word: "Being checked", Icon: "info", Tone: "live"}
	case payout.Disabled:
		out.State, out.Do, out.Why = view.State{
			Word: "Switched off",
			Icon: "error",
			Tone: "bad",
		}, "Go to Stripe", "Stripe says: "+strings.ReplaceAll(a.Disabled, "_", " ")
	case payout.Ready:
		out.State = view.State{Word: "Ready", Icon: "check", Tone: "ok"}
	}
	for _, d := range a.Due {
		out.Due = append(out.Due, dueWords(d))
	}
	return out
}

// dueWords describes one of Stripe's requirements.
func dueWords(requirement string) string {
	switch requirement {
	case "external_account":
		return "Your bank account"
	case "business_type":
		return "Whether you are a person or a company"
	}
	if strings.HasPrefix(requirement, "tos_acceptance.") {
		return "Your consent to Stripe's terms"
	}
	parts := strings.Split(strings.NewReplacer("individual.", "", "company.", "company: ").Replace(requirement), ".")
	s := strings.ReplaceAll(strings.Join(parts, ", "), "_", " ")
	return strings.ToUpper(s[:min(1, len(s))]) + s[min(1, len(s)):]
}

// setUpPayouts redirects the operator to Stripe's form.
func (s *Pages) setUpPayouts(v *page.Visit) error {
	form := PayoutForm{Country: strings.ToUpper(strings.TrimSpace(v.R.FormValue("country")))}
	url, _, err := s.Payouts.Onboard(v.R.Context(), v.Who, form.Country, v.Once("country"))
	if err != nil {
		if fault.KindOf(err) == fault.Unavailable {
			return err
		}
		return s.Again(v, err, func(errs map[string]string) error {
			form.Error = errs["country"]
			if form.Error == "" {
				form.Error = errs[""]
			}
			return s.showPayouts(v, form)
		})
	}
	return page.Back(v, url)
}

// PayoutRows converts payouts for pages; names are those of the organisations paid, for the admin console.
func PayoutRows(list []payout.Payout, names map[id.Org]string, now time.Time) []PayoutRow {
	out := make([]PayoutRow, len(list))
	for i, x := range list {
		out[i] = PayoutRow{
			ID:       x.ID.String(),
			Time:     view.Clock(x.CreatedAt, now),
			Amount:   x.Amount,
			Reversed: x.Reversed,
			Transfer: x.Transfer,
			Why:      x.Failure,
			State:    payoutState(x),
			Org:      x.Org.String(),
			Name:     names[x.Org],
		}
		if x.State == payout.Paid {
			out[i].Left = x.Amount - x.Reversed
		}
		if r := x.Reversal; r != nil {
			out[i].Asked, out[i].Refused, out[i].Refusal = r.Amount, r.State == payout.ReversalRefused, r.Failure
		}
	}
	return out
}
