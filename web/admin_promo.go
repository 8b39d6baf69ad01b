package web

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/view"
)

func (s *Web) promoPage(v *visit) error {
	return s.showPromo(v, view.ActForm{}, view.NewPromo{Uses: "100"})
}

func (s *Web) showPromo(v *visit, form view.ActForm, typed view.NewPromo) error {
	ctx := v.r.Context()
	form.Once = newOnce()
	out := view.Promo{
		Code:     strings.TrimSpace(v.r.URL.Query().Get("code")),
		Currency: s.Currency,
		Now:      s.Now(),
		Form:     form,
		New:      typed,
		Done: done(v, map[string]string{
			"create":  "The code is made and works from now on.",
			"disable": "The code is over. Credit that it gave stays.",
		}),
	}
	var err error
	if out.Codes, err = s.Payments.PromoCodes(ctx, v.who); err != nil {
		return err
	}
	if out.Uses, err = s.Payments.Redemptions(ctx, v.who, out.Code, id.Org{}, v.r.URL.Query().Get("after"),
		adminRows+1); err != nil {
		return err
	}
	if len(out.Uses) > adminRows {
		out.Uses = out.Uses[:adminRows]
		out.Next = older(v, out.Uses[adminRows-1].Cursor())
	}
	return s.render(v, view.PromoPage(v.page("Promo codes", "desk"), out))
}

func (s *Web) createPromo(v *visit) error {
	f := func(name string) string { return strings.TrimSpace(v.r.FormValue(name)) }
	typed := view.NewPromo{Code: f("code"), Amount: f("amount"), Uses: f("uses"), Ends: f("ends")}
	form := view.ActForm{Act: "create", Reason: f("reason")}
	code, err := newPromo(typed)
	if err == nil {
		_, _, err = s.Payments.CreatePromoCode(v.r.Context(), v.who, code, form.Reason,
			v.once("code", "amount", "uses", "ends", "reason"))
		err = inForm(err)
	}
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showPromo(v, form, typed)
		})
	}
	return back(v, "/admin/promo?done=create")
}

// newPromo reads what was typed; what the code may be is the noun's.
func newPromo(t view.NewPromo) (payment.PromoCode, error) {
	c := payment.PromoCode{Code: t.Code}
	var bad fault.Fields
	var err error
	if c.Amount, err = money.ParseNano(t.Amount); err != nil {
		bad.Add("amount", "%s", err)
	}
	if c.MaxUses, err = strconv.Atoi(t.Uses); err != nil {
		bad.Add("max_uses", "is a whole number")
	}
	if t.Ends != "" {
		day, err := time.Parse(time.DateOnly, t.Ends)
		if err != nil {
			bad.Add("expires_at", "is a day such as 2027-01-31")
		}
		end := day.AddDate(0, 0, 1)
		c.ExpiresAt = &end
	}
	return c, bad.Err()
}

func (s *Web) disablePromo(v *visit) error {
	code := chi.URLParam(v.r, "code")
	form := view.ActForm{Act: "disable", Target: code, Reason: strings.TrimSpace(v.r.FormValue("reason"))}
	_, _, err := s.Payments.DisablePromoCode(v.r.Context(), v.who, code, form.Reason, v.once("reason"))
	if err = inForm(err); err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showPromo(v, form, view.NewPromo{Uses: "100"})
		})
	}
	return back(v, "/admin/promo?"+url.Values{"done": {"disable"}}.Encode())
}
