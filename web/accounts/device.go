package accounts

import (
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// devicePages are where a person approves the sign-in of a command line.
type devicePages struct {
	*page.Site
}

func (s *devicePages) devicePage(v *page.Visit) error { return s.showDevice(v, Device{}) }

// showDevice renders the page on which a person enters the code of a program that logs in, and answers.
func (s *devicePages) showDevice(v *page.Visit, d Device) error {
	d.Email, d.Org, d.Scopes = v.Who.Email, v.Who.OrgName, v.Who.Role.Scopes()
	return s.Render(v, DevicePage(v.Page("Log in a program", ""), d))
}

// findDevice shows what waits under a code. There is no link that fills in the code: people must not grant with one
// click what another person has begun.
func (s *devicePages) findDevice(v *page.Visit) error {
	d := Device{Code: v.R.FormValue("code")}
	r, err := s.Accounts.DeviceLogins.ByCode(v.R.Context(), v.Who, d.Code)
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			d.Errors = map[string]string{"code": page.First(errs, "code", "")}
			return s.showDevice(v, d)
		})
	}
	d.Found, d.Machine, d.Address, d.Near = true, r.Machine, r.Address, r.Near
	d.Begun = view.Clock(r.CreatedAt, s.Now())
	return s.showDevice(v, d)
}

func (s *devicePages) answerDevice(v *page.Visit) error {
	if err := v.R.ParseForm(); err != nil {
		return fault.New(fault.Invalid, "the form could not be read")
	}
	d := Device{Code: v.R.FormValue("code"), Done: "denied"}
	var scopes []string
	if v.R.FormValue("answer") == "grant" {
		d.Done, scopes = "granted", v.R.Form["scope"]
		if len(scopes) == 0 {
			return fault.New(fault.Invalid, "choose at least one right")
		}
	}
	if err := s.Accounts.DeviceLogins.Answer(v.R.Context(), v.Who, d.Code, scopes); err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			return s.showDevice(v, Device{Code: d.Code, Errors: map[string]string{"code": page.First(errs, "code", "")}})
		})
	}
	return s.showDevice(v, d)
}
