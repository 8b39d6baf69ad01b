package web

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/view"
)

func (s *Web) taxPage(v *visit) error {
	// The quarter that is over: what is to be declared and paid next.
	t := s.Now().UTC().AddDate(0, -3, 1-s.Now().UTC().Day())
	period := cmp.Or(strings.TrimSpace(v.r.FormValue("period")), fmt.Sprintf("%d-Q%d", t.Year(), (int(t.Month())+2)/3))
	return s.showTax(v, view.ActForm{}, period)
}

func (s *Web) showTax(v *visit, form view.ActForm, period string) error {
	form.Once = newOnce()
	out := view.Taxes{
		Form:     form,
		Period:   period,
		Currency: s.Currency,
		Done:     done(v, map[string]string{"remit": "Booked: the tax office was paid."}),
	}
	r, err := s.Statements.Taxes(v.r.Context(), v.who, period)
	switch {
	case fault.Is(err, fault.Invalid):
		out.Bad = "is a year, quarter or month, such as 2026, 2026-Q1 or 2026-01"
	case err != nil:
		return err
	default:
		out.Report, out.Over = r, !s.Now().Before(r.To)
	}
	return s.render(v, view.TaxPage(v.page("Taxes", "desk"), out))
}

// remitTax books that a tax office was paid.
func (s *Web) remitTax(v *visit) error {
	f := func(name string) string { return strings.TrimSpace(v.r.FormValue(name)) }
	m := tax.Remittance{Period: f("period"), Country: f("country"), Reason: f("reason")}
	form := view.ActForm{Act: "remit", Target: m.Country, Value: f("amount"), Reason: m.Reason}
	var err error
	if m.Amount, err = money.ParseNano(form.Value); err != nil {
		err = fault.InvalidField("amount", "%s", err)
	} else {
		_, _, err = s.Payments.RemitTax(v.r.Context(), v.who, m, v.once("period", "country", "amount", "reason"))
		err = inForm(err)
	}
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showTax(v, form, m.Period)
		})
	}
	return back(v, "/admin/tax?"+url.Values{"period": {m.Period}, "done": {"remit"}}.Encode())
}
