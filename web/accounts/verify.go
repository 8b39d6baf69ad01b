package accounts

import (
	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/web/page"
)

// emailPages verify and change addresses.
type emailPages struct {
	*page.Site
	profile *profilePages
}

// verifyForm asks for a click: mail scanners open links before the recipient does, but do not submit forms.
func (s *emailPages) verifyForm(v *page.Visit) error {
	return s.Render(v, VerifyEmail(v.Page("Confirm your e-mail address", ""),
		Verification{Code: chi.URLParam(v.R, "code"), Password: !v.SignedIn()}))
}

func (s *emailPages) verifyEmail(v *page.Visit) error {
	code := v.R.FormValue("code")
	err := s.Accounts.Verifications.VerifyEmail(v.R.Context(), v.Who, code, v.R.FormValue("password"), page.Address(v.R))
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			return s.Render(v, VerifyEmail(v.Page("Confirm your e-mail address", ""),
				Verification{Code: code, Password: true, Error: page.First(errs, "password", "")}))
		})
	}
	return s.Render(v, VerifyEmail(v.Page("Confirm your e-mail address", ""), Verification{Done: true}))
}

// sendVerification sends the verification link again.
func (s *emailPages) sendVerification(v *page.Visit) error {
	_, _, err := s.Accounts.Verifications.Send(v.R.Context(), v.Who, idem.Request{})
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			return s.profile.showAccount(v, Account{Errors: map[string]string{"email": errs[""]}})
		})
	}
	return page.Back(v, "/account?sent=1#email")
}

// beginEmailChange sends a link to a new address.
func (s *emailPages) beginEmailChange(v *page.Visit) error {
	err := s.Accounts.EmailChanges.Begin(v.R.Context(), v.Who, v.R.FormValue("new_email"), v.R.FormValue("email_password"))
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			return s.profile.showAccount(v, Account{Errors: map[string]string{
				"new_email": page.First(errs, "email", ""), "email_password": errs["password"],
			}})
		})
	}
	return page.Back(v, "/account?sent-to-new=1#email")
}

// emailChangeForm asks for a click, as verifyForm does.
func (s *emailPages) emailChangeForm(v *page.Visit) error {
	return s.showEmailChange(v, chi.URLParam(v.R, "code"), "")
}

func (s *emailPages) showEmailChange(v *page.Visit, code, refused string) error {
	address, err := s.Accounts.EmailChanges.Address(v.R.Context(), v.Who, code)
	if err != nil {
		return err
	}
	return s.Render(v, EmailChangePage(v.Page("Change your e-mail address", ""),
		EmailChange{Code: code, Address: address, Error: refused}))
}

func (s *emailPages) confirmEmailChange(v *page.Visit) error {
	code := v.R.FormValue("code")
	if err := s.Accounts.EmailChanges.Confirm(v.R.Context(), v.Who, code); err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			return s.showEmailChange(v, code, page.First(errs, ""))
		})
	}
	return page.Back(v, "/account#email")
}
