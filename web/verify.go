package web

import (
	"context"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/web/view"
)

// verifyForm asks for a click: what reads mail before its owner does opens links, and presses no buttons.
func (s *Web) verifyForm(v *visit) error {
	return s.render(v, view.VerifyEmail(v.page("Confirm your e-mail address", ""),
		view.Verification{Code: chi.URLParam(v.r, "code")}))
}

func (s *Web) verifyEmail(v *visit) error {
	err := s.DB.InTx(v.r.Context(), func(ctx context.Context, tx *db.Tx) error {
		return account.VerifyEmail(ctx, tx, v.r.FormValue("code"), address(v.r))
	})
	if err != nil {
		return err
	}
	return s.render(v, view.VerifyEmail(v.page("Confirm your e-mail address", ""), view.Verification{Done: true}))
}

// sendVerification mails the link again.
func (s *Web) sendVerification(v *visit) error {
	err := s.DB.InTx(v.r.Context(), func(ctx context.Context, tx *db.Tx) error {
		return s.Accounts.SendVerification(ctx, tx, v.who)
	})
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			return s.showAccount(v, view.Account{Errors: map[string]string{"email": errs[""]}})
		})
	}
	return back(v, "/account?sent=1#email")
}
