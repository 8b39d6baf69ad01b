package accounts

import (
	"strings"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/web/page"
)

// legalPages change an organisation's legal data and time zone.
type legalPages struct {
	*page.Site
	profile *profilePages
}

func (s *legalPages) setLegal(v *page.Visit) error {
	f := LegalForm{
		Name: v.R.FormValue("legal_name"), Address: strings.ReplaceAll(v.R.FormValue("legal_address"), "\r\n", "\n"),
		Country: v.R.FormValue("legal_country"), VATID: v.R.FormValue("legal_vat"),
	}
	_, err := s.Accounts.Legals.Set(v.R.Context(), v.Who, account.Legal{
		Name:    f.Name,
		Address: strings.Split(f.Address, "\n"),
		Country: f.Country,
		VATID:   f.VATID,
	})
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			f.Errors = errs
			return s.profile.showAccount(v, Account{Legal: f})
		})
	}
	return page.Back(v, "/account#legal")
}

func (s *legalPages) eraseLegal(v *page.Visit) error {
	if err := s.Accounts.Legals.Erase(v.R.Context(), v.Who); err != nil {
		return err
	}
	return page.Back(v, "/account#legal")
}

// setZone sets the time zone of the visitor's organisation.
func (s *legalPages) setZone(v *page.Visit) error {
	zone := v.R.FormValue("zone")
	if err := s.Accounts.SetZone(v.R.Context(), v.Who, zone); err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			return s.profile.showAccount(v, Account{Zone: ZoneForm{Error: page.First(errs, "zone", "")}})
		})
	}
	return page.Back(v, "/account?saved=zone#zone")
}
