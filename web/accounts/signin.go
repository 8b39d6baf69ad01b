package accounts

import (
	"net/http"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

func (s *Pages) setTheme(v *page.Visit) error {
	switch t := v.R.FormValue("theme"); t {
	case "light", "dark":
		s.SetCookie(v.W, page.ThemeCookie, t, 365*24*time.Hour)
	default:
		s.SetCookie(v.W, page.ThemeCookie, "", -1)
	}
	return page.Back(v, page.Whence(v.R, "/"))
}

// gate completes the sign-in and sign-up forms with figures of the market. If they cannot be read, the form goes
// without.
func (s *Pages) gate(v *page.Visit, f SignForm) SignForm {
	page, err := s.Market.SearchOffers(v.R.Context(), market.OfferSearch{Limit: 1})
	if err != nil {
		s.Log.ErrorContext(v.R.Context(), "read the market for the gate", "err", err)
		return f
	}
	f.Plate = Plate{FreeGPUs: page.GPUsFree, Currency: s.Currency}
	if len(page.Items) > 0 {
		f.Plate.From = view.PerHour(page.Items[0].PricePerGPUHour) // offers are sorted by price
	}
	return f
}

func (s *Pages) signInForm(v *page.Visit) error {
	return s.Render(v, SignIn(v.Page("Sign in", "signin"), s.gate(v, SignForm{Next: v.R.FormValue("next")})))
}

func (s *Pages) signIn(v *page.Visit) error {
	f := SignForm{Email: v.R.FormValue("email"), Next: v.R.FormValue("next")}
	secret, _, err := s.Accounts.SignIn(v.R.Context(), account.SignIn{
		Email: f.Email, Password: v.R.FormValue("password"), Address: page.Address(v.R), UserAgent: v.R.UserAgent(),
	})
	if asked, err := s.showCodeForm(v, err, f.Next); asked {
		return err
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			if fault.Is(err, fault.Unauthorized) {
				errs = map[string]string{"password": "Email and password do not match."}
			}
			f.Errors = errs
			return s.Render(v, SignIn(v.Page("Sign in", "signin"), s.gate(v, f)))
		})
	}
	return s.openSession(v, secret, f.Next)
}

func (s *Pages) signUpForm(v *page.Visit) error {
	return s.Render(v, SignUp(v.Page("Create an account", "signup"), s.gate(v, SignForm{Next: v.R.FormValue("next")})))
}

func (s *Pages) signUp(v *page.Visit) error {
	f := SignForm{Email: v.R.FormValue("email"), Name: v.R.FormValue("name"), Next: v.R.FormValue("next")}
	in := account.SignIn{
		Email:     f.Email,
		Password:  v.R.FormValue("password"),
		Address:   page.Address(v.R),
		UserAgent: v.R.UserAgent(),
	}
	_, err := s.Accounts.Register(v.R.Context(), account.SignUp{
		Email:    f.Email,
		Password: in.Password,
		Name:     f.Name,
		Address:  in.Address,
	})
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			f.Errors = errs
			return s.Render(v, SignUp(v.Page("Create an account", "signup"), s.gate(v, f)))
		})
	}
	secret, _, err := s.Accounts.SignIn(v.R.Context(), in)
	if err != nil {
		return err
	}
	s.SetCookie(v.W, s.SessionCookie(), secret, 90*24*time.Hour)
	to := "/"
	if f.Next != "" {
		to = page.OwnPath(f.Next)
	}
	http.Redirect(v.W, v.R, to, http.StatusSeeOther)
	return nil
}

func (s *Pages) signOut(v *page.Visit) error {
	if err := s.Accounts.SignOut(v.R.Context(), v.Who); err != nil {
		return err
	}
	return s.signedOut(v)
}

func (s *Pages) signOutEverywhere(v *page.Visit) error {
	if _, err := s.Accounts.SignOutEverywhere(v.R.Context(), v.Who); err != nil {
		return err
	}
	return s.signedOut(v)
}

func (s *Pages) signedOut(v *page.Visit) error {
	s.SetCookie(v.W, s.SessionCookie(), "", -1)
	http.Redirect(v.W, v.R, "/signin", http.StatusSeeOther)
	return nil
}
