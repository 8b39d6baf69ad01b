package accounts

import (
	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/web/page"
)

// verifyForm asks for a click: mail scanners open links before the recipient does, but do not submit forms.
func (s *Pages) verifyForm(v *page.Visit) error {
	return s.Render(v, VerifyEmail(v.Page("Confirm your e-mail address", ""),
		Verification{Code: chi.URLParam(v.R, "code"), Password: !v.SignedIn()}))
}

func (s *Pages) verifyEmail(v *page.Visit) error {
	code := v.R.FormValue("code")
	err := s.Accounts.VerifyEmail(v.R.Context(), v.Who, code, v.R.FormValue("password"), page.Address(v.R))
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			return s.Render(v, VerifyEmail(v.Page("Confirm your e-mail address", ""),
				Verification{Code: code, Password: true, Error: page.First(errs, "password", "")}))
		})
	}
	return s.Render(v, VerifyEmail(v.Page("Confirm your e-mail address", ""), Verification{Done: true}))
}

// sendVerification sends the verification link again.
func (s *Pages) sendVerification(v *page.Visit) error {
	_, _, err := s.Accounts.SendVerification(v.R.Context(), v.Who, idem.Request{})
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			return s.showAccount(v, Account{Errors: map[string]string{"email": errs[""]}})
		})
	}
	return page.Back(v, "/account?sent=1#email")
}
