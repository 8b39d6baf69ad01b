package web

import (
	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/view"
)

func (s *Web) changePassword(v *visit) error {
	err := s.Accounts.ChangePassword(v.r.Context(), v.who, v.r.FormValue("old_password"), v.r.FormValue("new_password"),
		v.r.FormValue("revoke_tokens") != "")
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			return s.showAccount(v, view.Account{Errors: map[string]string{
				"old_password": first(errs, "old_password", ""), "new_password": errs["new_password"],
			}})
		})
	}
	return back(v, "/account?changed=1#password")
}

func (s *Web) endSession(v *visit) error {
	x, err := id.Parse[id.Session](chi.URLParam(v.r, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "no such session")
	}
	if err := s.Accounts.EndSession(v.r.Context(), v.who, x); err != nil {
		return err
	}
	return back(v, "/account#sessions")
}

func (s *Web) forgotForm(v *visit) error {
	return s.render(v, view.ForgotPassword(v.page("Set a new password", "signin"), view.PasswordForm{}))
}

// forgot answers the same whether the address has an account or not.
func (s *Web) forgot(v *visit) error {
	f := view.PasswordForm{Email: v.r.FormValue("email")}
	if err := s.Accounts.SendPasswordReset(v.r.Context(), f.Email, address(v.r)); err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			f.Errors = map[string]string{"email": first(errs, "email", "")}
			return s.render(v, view.ForgotPassword(v.page("Set a new password", "signin"), f))
		})
	}
	f.Done = true
	return s.render(v, view.ForgotPassword(v.page("Set a new password", "signin"), f))
}

func (s *Web) resetForm(v *visit) error {
	return s.render(v, view.ResetPassword(v.page("Set a new password", "signin"),
		view.PasswordForm{Code: chi.URLParam(v.r, "code")}))
}

func (s *Web) resetPassword(v *visit) error {
	f := view.PasswordForm{Code: v.r.FormValue("code")}
	err := s.Accounts.ResetPassword(v.r.Context(), f.Code, v.r.FormValue("new_password"), address(v.r),
		v.r.FormValue("revoke_tokens") != "")
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			f.Errors = map[string]string{"new_password": first(errs, "new_password", "")}
			return s.render(v, view.ResetPassword(v.page("Set a new password", "signin"), f))
		})
	}
	f.Done = true
	return s.render(v, view.ResetPassword(v.page("Set a new password", "signin"), f))
}
