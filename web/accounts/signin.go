package accounts

import (
	"errors"
	"net/http"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// challengeCookie keeps the secret of a sign-in that waits for its second factor.
const challengeCookie = "muster_challenge"

// signInPages sign people in, with a second factor if they have one, up and out.
type signInPages struct {
	*page.Site
}

func (s *signInPages) setTheme(v *page.Visit) error {
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
func (s *signInPages) gate(v *page.Visit, f SignForm) SignForm {
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

func (s *signInPages) signInForm(v *page.Visit) error {
	return s.Render(v, SignIn(v.Page("Sign in", "signin"), s.gate(v, SignForm{Next: v.R.FormValue("next")})))
}

func (s *signInPages) signIn(v *page.Visit) error {
	f := SignForm{Email: v.R.FormValue("email"), Next: v.R.FormValue("next")}
	secret, _, err := s.Accounts.Sessions.SignIn(v.R.Context(), account.SignIn{
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

func (s *signInPages) signUpForm(v *page.Visit) error {
	return s.Render(v, SignUp(v.Page("Create an account", "signup"), s.gate(v, SignForm{Next: v.R.FormValue("next")})))
}

func (s *signInPages) signUp(v *page.Visit) error {
	f := SignForm{Email: v.R.FormValue("email"), Name: v.R.FormValue("name"), Next: v.R.FormValue("next")}
	in := account.SignIn{
		Email:     f.Email,
		Password:  v.R.FormValue("password"),
		Address:   page.Address(v.R),
		UserAgent: v.R.UserAgent(),
	}
	_, err := s.Accounts.SignUps.Register(v.R.Context(), account.SignUp{
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
	secret, _, err := s.Accounts.Sessions.SignIn(v.R.Context(), in)
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

func (s *signInPages) signOut(v *page.Visit) error {
	if err := s.Accounts.Sessions.SignOut(v.R.Context(), v.Who); err != nil {
		return err
	}
	return s.signedOut(v)
}

func (s *signInPages) signOutEverywhere(v *page.Visit) error {
	if _, err := s.Accounts.Sessions.SignOutEverywhere(v.R.Context(), v.Who); err != nil {
		return err
	}
	return s.signedOut(v)
}

func (s *signInPages) signedOut(v *page.Visit) error {
	s.SetCookie(v.W, s.SessionCookie(), "", -1)
	http.Redirect(v.W, v.R, "/signin", http.StatusSeeOther)
	return nil
}

// openSession sets the session's cookie after a sign-in, and redirects to next, a path of this site.
func (s *signInPages) openSession(v *page.Visit, secret, next string) error {
	s.SetCookie(v.W, s.SessionCookie(), secret, 90*24*time.Hour)
	s.SetCookie(v.W, challengeCookie, "", -1)
	http.Redirect(v.W, v.R, page.OwnPath(next), http.StatusSeeOther)
	return nil
}

// showCodeForm shows the form of the second factor, if err is that of a sign-in that needs one; else it returns false.
func (s *signInPages) showCodeForm(v *page.Visit, err error, next string) (bool, error) {
	var need *account.SecondFactorNeeded
	if !errors.As(err, &need) {
		return false, nil
	}
	s.SetCookie(v.W, challengeCookie, need.Challenge, 10*time.Minute)
	return true, s.Render(v, SecondFactor(v.Page("Sign in", "signin"), SignForm{Next: next}))
}

// finishSignIn takes the code of a sign-in whose password was right.
func (s *signInPages) finishSignIn(v *page.Visit) error {
	f := SignForm{Next: v.R.FormValue("next")}
	challenge := ""
	if c, err := v.R.Cookie(challengeCookie); err == nil {
		challenge = c.Value
	}
	secret, _, err := s.Accounts.SecondFactors.FinishSignIn(v.R.Context(), challenge, v.R.FormValue("code"),
		account.SignIn{Address: page.Address(v.R), UserAgent: v.R.UserAgent()})
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			if fault.Is(err, fault.Unauthorized) {
				f.Errors = map[string]string{"": errs[""]}
				return s.Render(v, SignIn(v.Page("Sign in", "signin"), s.gate(v, f)))
			}
			f.Errors = errs
			return s.Render(v, SecondFactor(v.Page("Sign in", "signin"), f))
		})
	}
	return s.openSession(v, secret, f.Next)
}
