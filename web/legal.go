package web

import (
	"strings"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/web/view"
)

func (s *Web) setLegal(v *visit) error {
	f := view.LegalForm{
		Name: v.r.FormValue("legal_name"), Address: strings.ReplaceAll(v.r.FormValue("legal_address"), "\r\n", "\n"),
		Country: v.r.FormValue("legal_country"), VATID: v.r.FormValue("legal_vat"),
	}
	_, err := s.Accounts.SetLegal(v.r.Context(), v.who, account.Legal{
		Name:    f.Name,
		Address: strings.Split(f.Address, "\n"),
		Country: f.Country,
		VATID:   f.VATID,
	})
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			f.Errors = errs
			return s.showAccount(v, view.Account{Legal: f})
		})
	}
	return back(v, "/account#legal")
}

func (s *Web) eraseLegal(v *visit) error {
	if err := s.Accounts.EraseLegal(v.r.Context(), v.who); err != nil {
		return err
	}
	return back(v, "/account#legal")
}
