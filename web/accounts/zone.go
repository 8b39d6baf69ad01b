package accounts

import (
	"github.com/musterhq/muster/web/page"
)

// setZone sets the time zone of the visitor's organisation.
func (s *Pages) setZone(v *page.Visit) error {
	zone := v.R.FormValue("zone")
	if err := s.Accounts.SetZone(v.R.Context(), v.Who, zone); err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			return s.showAccount(v, Account{Zone: ZoneForm{Error: page.First(errs, "zone", "")}})
		})
	}
	return page.Back(v, "/account?saved=zone#zone")
}
