package web

import (
	"net/http"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/web/view"
)

func (s *Web) setTheme(v *visit) error {
	switch t := v.r.FormValue("theme"); t {
	case "light", "dark":
		s.setCookie(v.w, themeCookie, t, 365*24*time.Hour)
	default:
		s.setCookie(v.w, themeCookie, "", -1)
	}
	return back(v, whence(v.r, "/"))
}

// gate completes what is shown before signing in: what the market says of itself, when it can.
func (s *Web) gate(v *visit, f view.SignForm) view.SignForm {
	page, err := s.Market.SearchOffers(v.r.Context(), market.OfferSearch{Limit: 1})
	if err != nil {
		s.Log.ErrorContext(v.r.Context(), "read the market for the gate", "err", err)
		return f
	}
	f.Plate = view.Plate{FreeGPUs: page.GPUsFree, Currency: s.Currency}
	if len(page.Items) > 0 {
		f.Plate.From = view.PerHour(page.Items[0].PricePerGPUHour) // the cheapest comes first
	}
	return f
}

func (s *Web) signInForm(v *visit) error {
	return s.render(v, view.SignIn(v.page("Sign in", "signin"), s.gate(v, view.SignForm{Next: v.r.FormValue("next")})))
}

func (s *Web) signIn(v *visit) error {
	f := view.SignForm{Email: v.r.FormValue("email"), Next: v.r.FormValue("next")}
	secret, _, err := s.Accounts.SignIn(v.r.Context(), account.SignIn{
		Email: f.Email, Password: v.r.FormValue("password"), Address: address(v.r), UserAgent: v.r.UserAgent(),
	})
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			if fault.Is(err, fault.Unauthorized) {
				errs = map[string]string{"password": "Email and password do not match."}
			}
			f.Errors = errs
			return s.render(v, view.SignIn(v.page("Sign in", "signin"), s.gate(v, f)))
		})
	}
	s.setCookie(v.w, s.sessionCookie(), secret, 90*24*time.Hour)
	http.Redirect(v.w, v.r, ownPath(f.Next), http.StatusSeeOther)
	return nil
}

func (s *Web) signUpForm(v *visit) error {
	return s.render(v, view.SignUp(v.page("Create an account", "signup"), s.gate(v, view.SignForm{})))
}

func (s *Web) signUp(v *visit) error {
	f := view.SignForm{Email: v.r.FormValue("email"), Name: v.r.FormValue("name")}
	in := account.SignIn{
		Email:     f.Email,
		Password:  v.r.FormValue("password"),
		Address:   address(v.r),
		UserAgent: v.r.UserAgent(),
	}
	_, err := s.Accounts.Register(v.r.Context(), account.SignUp{
		Email:    f.Email,
		Password: in.Password,
		Name:     f.Name,
		Address:  in.Address,
	})
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			f.Errors = errs
			return s.render(v, view.SignUp(v.page("Create an account", "signup"), s.gate(v, f)))
		})
	}
	secret, _, err := s.Accounts.SignIn(v.r.Context(), in)
	if err != nil {
		return err
	}
	s.setCookie(v.w, s.sessionCookie(), secret, 90*24*time.Hour)
	http.Redirect(v.w, v.r, "/offers", http.StatusSeeOther)
	return nil
}

func (s *Web) signOut(v *visit) error {
	if err := s.Accounts.SignOut(v.r.Context(), v.who); err != nil {
		return err
	}
	return s.signedOut(v)
}

func (s *Web) signOutEverywhere(v *visit) error {
	if _, err := s.Accounts.SignOutEverywhere(v.r.Context(), v.who); err != nil {
		return err
	}
	return s.signedOut(v)
}

func (s *Web) signedOut(v *visit) error {
	s.setCookie(v.w, s.sessionCookie(), "", -1)
	http.Redirect(v.w, v.r, "/signin", http.StatusSeeOther)
	return nil
}

// home is the market for visitors, and for somebody with clusters the list of them.
func (s *Web) home(v *visit) error {
	to := "/offers"
	if v.signedIn() {
		to = "/clusters"
	}
	http.Redirect(v.w, v.r, to, http.StatusSeeOther)
	return nil
}
