package accounts

import (
	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
)

// passwordPages change passwords, replace forgotten ones, and end sessions.
type passwordPages struct {
	*page.Site
	profile *profilePages
}

func (s *passwordPages) changePassword(v *page.Visit) error {
	err := s.Accounts.Passwords.Change(v.R.Context(), v.Who, v.R.FormValue("old_password"), v.R.FormValue("new_password"),
		v.R.FormValue("revoke_tokens") != "")
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			return s.profile.showAccount(v, Account{Errors: map[string]string{
				"old_password": page.First(errs, "old_password", ""), "new_password": errs["new_password"],
			}})
		})
	}
	return page.Back(v, "/account?changed=1#password")
}

func (s *passwordPages) endSession(v *page.Visit) error {
	x, err := id.Parse[id.Session](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "session not found")
	}
	if err := s.Accounts.Sessions.End(v.R.Context(), v.Who, x); err != nil {
		return err
	}
	return page.Back(v, "/account#sessions")
}

func (s *passwordPages) forgotForm(v *page.Visit) error {
	return s.Render(v, ForgotPassword(v.Page("Set a new password", "signin"), PasswordForm{}))
}

// forgot gives the same response whether or not an account has the address.
func (s *passwordPages) forgot(v *page.Visit) error {
	f := PasswordForm{Email: v.R.FormValue("email")}
	if err := s.Accounts.Passwords.SendReset(v.R.Context(), f.Email, page.Address(v.R)); err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			f.Errors = map[string]string{"email": page.First(errs, "email", "")}
			return s.Render(v, ForgotPassword(v.Page("Set a new password", "signin"), f))
		})
	}
	f.Done = true
	return s.Render(v, ForgotPassword(v.Page("Set a new password", "signin"), f))
}

func (s *passwordPages) resetForm(v *page.Visit) error {
	return s.Render(v, ResetPassword(v.Page("Set a new password", "signin"),
		PasswordForm{Code: chi.URLParam(v.R, "code")}))
}

func (s *passwordPages) resetPassword(v *page.Visit) error {
	f := PasswordForm{Code: v.R.FormValue("code")}
	err := s.Accounts.Passwords.Reset(v.R.Context(), f.Code, v.R.FormValue("new_password"), page.Address(v.R),
		v.R.FormValue("revoke_tokens") != "")
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			f.Errors = map[string]string{"new_password": page.First(errs, "new_password", "")}
			return s.Render(v, ResetPassword(v.Page("Set a new password", "signin"), f))
		})
	}
	f.Done = true
	return s.Render(v, ResetPassword(v.Page("Set a new password", "signin"), f))
}
