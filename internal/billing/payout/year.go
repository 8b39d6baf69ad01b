package payout

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Year is what an operator's tax return needs of a calendar year, month by month in the org's zone. Months without a
// movement are left out.
type Year struct {
	Year     int
	Currency string
	Months   []Month
}

// Month is one of them. By the ledger: earned is what was posted in it, paid what was sent in it.
type Month struct {
	Month     string     // YYYY-MM
	Earned    money.Nano // the operator's part of what was billed
	Returned  money.Nano // of what was earned, then or before: given back to renters, or refused by a review
	Paid      money.Nano // sent to the operator's account at Stripe
	TakenBack money.Nano // of what was sent, then or before
}

// Year reads a calendar year of the org's. Fault: Invalid (no such year).
func (p *Payouts) Year(ctx context.Context, org id.Org, year string) (Year, error) {
	n, err := strconv.Atoi(year)
	if err != nil || n < 2000 || n > 9999 {
		return Year{}, fault.InvalidField("year", "must be a calendar year, such as 2026")
	}
	zone, err := account.ZoneOf(ctx, p.d.Q, org)
	if err != nil {
		return Year{}, err
	}
	from, to := time.Date(n, 1, 1, 0, 0, 0, 0, zone), time.Date(n+1, 1, 1, 0, 0, 0, 0, zone)
	rows, err := p.d.Q.PayoutMonths(ctx, dbq.PayoutMonthsParams{Zone: zone.String(), OrgID: org, Currency: p.cfg.Currency,
		FromID: firstID(from.Add(-idSlack)), ToID: firstID(to.Add(idSlack)), Since: from, Until: to})
	if err != nil {
		return Year{}, fmt.Errorf("%d of %s: %w", n, org, err)
	}
	out := Year{Year: n, Currency: p.cfg.Currency}
	for _, r := range rows {
		m := Month{r.Month, money.Nano(r.Earned), money.Nano(r.Returned), money.Nano(r.Paid), money.Nano(r.TakenBack)}
		if (m != Month{Month: m.Month}) {
			out.Months = append(out.Months, m)
		}
	}
	return out, nil
}

// CSV writes one line per month and their sums.
func (y Year) CSV(w io.Writer) error {
	c := csv.NewWriter(w)
	lines := [][]string{{"month", "earned", "returned", "paid_out", "taken_back", "currency"}}
	sum := Month{Month: "total"}
	for _, m := range y.Months {
		sum.Earned, sum.Returned, sum.Paid, sum.TakenBack = sum.Earned+m.Earned, sum.Returned+m.Returned, sum.Paid+m.Paid,
			sum.TakenBack+m.TakenBack
		lines = append(lines, m.line(y.Currency))
	}
	return c.WriteAll(append(lines, sum.line(y.Currency)))
}

func (m Month) line(currency string) []string {
	return []string{m.Month, m.Earned.String(), m.Returned.String(), m.Paid.String(), m.TakenBack.String(), currency}
}
