package web

import (
	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/web/view"
)

// verifyForm asks for a click: what reads mail before its owner does opens links, and presses no buttons.
func (s *Web) verifyForm(v *visit) error {
	return s.render(v, view.VerifyEmail(v.page("Confirm your e-mail address", ""),
		view.Verification{Code: chi.URLParam(v.r, "code")}))
}

func (s *Web) verifyEmail(v *visit) error {
	if err := s.Accounts.VerifyEmail(v.r.Context(), v.r.FormValue("code"), address(v.r)); err != nil {
		return err
	}
	return s.render(v, view.VerifyEmail(v.page("Confirm your e-mail address", ""), view.Verification{Done: true}))
}

// sendVerification mails the link again.
func (s *Web) sendVerification(v *visit) error {
	_, _, err := s.Accounts.SendVerification(v.r.Context(), v.who, idem.Request{})
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			return s.showAccount(v, view.Account{Errors: map[string]string{"email": errs[""]}})
		})
	}
	return back(v, "/account?sent=1#email")
}
