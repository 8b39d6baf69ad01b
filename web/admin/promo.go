package admin

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
	"github.com/musterhq/muster/web/page"
)

// promoPages are the promotional codes.
type promoPages struct {
	*page.Site
}

func (s *promoPages) promoPage(v *page.Visit) error {
	return s.showPromo(v, ActForm{}, NewPromo{Uses: "100"})
}

func (s *promoPages) showPromo(v *page.Visit, form ActForm, typed NewPromo) error {
	ctx := v.R.Context()
	form.Once = page.NewOnce()
	out := Promo{
		Code:     strings.TrimSpace(v.R.URL.Query().Get("code")),
		Currency: s.Currency,
		Now:      s.Now(),
		Form:     form,
		New:      typed,
		Done: page.Done(v, map[string]string{
			"create":  "The code is made and works from now on.",
			"disable": "The code is over. Credit that it gave stays.",
		}),
	}
	var err error
	if out.Codes, err = s.Payments.PromoCodes.List(ctx, v.Who); err != nil {
		return err
	}
	if out.Uses, err = s.Payments.PromoCodes.Redemptions(ctx, v.Who, out.Code, id.Org{}, v.R.URL.Query().Get("after"),
		page.AdminRows+1); err != nil {
		return err
	}
	if len(out.Uses) > page.AdminRows {
		out.Uses = out.Uses[:page.AdminRows]
		out.Next = page.Older(v, payment.RedemptionCursor(out.Uses[page.AdminRows-1]))
	}
	return s.Render(v, PromoPage(v.Page("Promo codes", "admin"), out))
}

func (s *promoPages) createPromo(v *page.Visit) error {
	f := func(name string) string { return strings.TrimSpace(v.R.FormValue(name)) }
	typed := NewPromo{Code: f("code"), Amount: f("amount"), Uses: f("uses"), Ends: f("ends")}
	form := ActForm{Act: "create", Reason: f("reason")}
	code, err := newPromo(typed)
	if err == nil {
		_, _, err = s.Payments.PromoCodes.Create(v.R.Context(), v.Who, code, form.Reason,
			v.Once("code", "amount", "uses", "ends", "reason"))
		err = inForm(err)
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showPromo(v, form, typed)
		})
	}
	return page.Back(v, "/admin/promo?done=create")
}

// newPromo parses the form; package payment validates the code.
func newPromo(t NewPromo) (payment.PromoCode, error) {
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

func (s *promoPages) disablePromo(v *page.Visit) error {
	code := chi.URLParam(v.R, "code")
	form := ActForm{Act: "disable", Target: code, Reason: strings.TrimSpace(v.R.FormValue("reason"))}
	_, _, err := s.Payments.PromoCodes.Disable(v.R.Context(), v.Who, code, form.Reason, v.Once("reason"))
	if err = inForm(err); err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showPromo(v, form, NewPromo{Uses: "100"})
		})
	}
	return page.Back(v, "/admin/promo?"+url.Values{"done": {"disable"}}.Encode())
}
