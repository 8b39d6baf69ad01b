package web

import "github.com/musterhq/muster/web/view"

// setZone sets the time zone of the visitor's organisation.
func (s *Web) setZone(v *visit) error {
	zone := v.r.FormValue("zone")
	if err := s.Accounts.SetZone(v.r.Context(), v.who, zone); err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			return s.showAccount(v, view.Account{Zone: view.ZoneForm{Error: first(errs, "zone", "")}})
		})
	}
	return back(v, "/account?saved=zone#zone")
}
