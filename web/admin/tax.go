package admin

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/page"
)

// taxPages are the tax that is owed and remitted.
type taxPages struct {
	*page.Site
}

func (s *taxPages) taxPage(v *page.Visit) error {
	// Default to the quarter that is over: it is declared and paid next.
	t := s.Now().UTC().AddDate(0, -3, 1-s.Now().UTC().Day())
	period := cmp.Or(strings.TrimSpace(v.R.FormValue("period")), fmt.Sprintf("%d-Q%d", t.Year(), (int(t.Month())+2)/3))
	return s.showTax(v, ActForm{}, period)
}

func (s *taxPages) showTax(v *page.Visit, form ActForm, period string) error {
	form.Once = page.NewOnce()
	out := Taxes{
		Form:     form,
		Period:   period,
		Currency: s.Currency,
		Periods:  recentPeriods(s.Now()),
		Done:     page.Done(v, map[string]string{"remit": "Booked: the tax office was paid."}),
	}
	r, err := s.Statements.Taxes(v.R.Context(), v.Who, period)
	switch {
	case fault.Is(err, fault.Invalid):
		out.Bad = "is a year, quarter or month, such as 2026, 2026-Q1 or 2026-01"
	case err != nil:
		return err
	default:
		out.Report, out.Over = r, !s.Now().Before(r.To)
	}
	return s.Render(v, TaxPage(v.Page("Taxes", "admin"), out))
}

// remitTax records a payment to a tax office.
func (s *taxPages) remitTax(v *page.Visit) error {
	f := func(name string) string { return strings.TrimSpace(v.R.FormValue(name)) }
	m := tax.Remittance{Period: f("period"), Country: f("country"), Reason: f("reason")}
	form := ActForm{Act: "remit", Target: m.Country, Value: f("amount"), Reason: m.Reason}
	var err error
	if m.Amount, err = money.ParseNano(form.Value); err != nil {
		err = fault.InvalidField("amount", "%s", err)
	} else {
		_, _, err = s.Payments.Taxes.Remit(v.R.Context(), v.Who, m, v.Once("period", "country", "amount", "reason"))
		err = inForm(err)
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showTax(v, form, m.Period)
		})
	}
	return page.Back(v, "/admin/tax?"+url.Values{"period": {m.Period}, "done": {"remit"}}.Encode())
}
