package web

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/text"
	"github.com/musterhq/muster/web/view"
)

const themeCookie = "muster_theme"

// sessionCookie is the name of the cookie with the session's secret. Over https the prefix makes browsers take it only
// from this very host: no other host of the domain, such as one that shows what renters run, can set one.
func (s *Web) sessionCookie() string {
	if s.secure {
		return "__Host-muster_session"
	}
	return "muster_session"
}

// recognise finds out who visits. A session that is over is no error: the visitor is nobody, and the cookie goes.
func (s *Web) recognise(v *visit) error {
	c, err := v.r.Cookie(s.sessionCookie())
	if err != nil {
		return nil
	}
	v.who, err = s.Accounts.SessionPrincipal(v.r.Context(), c.Value)
	if fault.Is(err, fault.Unauthorized) {
		s.setCookie(v.w, s.sessionCookie(), "", -1)
		return nil
	}
	if err != nil {
		return err
	}
	v.who.Address = address(v.r)
	// The secret changes now and then. Live streams cannot set a cookie any more once they answer, so not there.
	if v.r.Header.Get("Accept") != "text/event-stream" {
		fresh, err := s.Accounts.RotateSession(v.r.Context(), c.Value)
		if err != nil {
			return err
		}
		if fresh != "" {
			s.setCookie(v.w, s.sessionCookie(), fresh, 90*24*time.Hour)
		}
	}
	return nil
}

// setCookie writes one of our cookies; a negative age removes it.
func (s *Web) setCookie(w http.ResponseWriter, name, value string, age time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: int(age.Seconds()),
		HttpOnly: true, Secure: s.secure, SameSite: http.SameSiteLaxMode,
	})
}

// toSignIn sends a visitor to sign in and back here afterwards. A form that was posted meanwhile is not repeated.
func (s *Web) toSignIn(v *visit) {
	next := v.r.URL.RequestURI()
	if v.r.Method != http.MethodGet {
		next = "/"
	}
	http.Redirect(v.w, v.r, "/signin?next="+url.QueryEscape(next), http.StatusSeeOther)
}

// ownPath is p when it is a path of this site, else the start page: nobody is sent elsewhere by a link of ours.
// Browsers drop tabs and line ends from an address and take a backslash for a slash, so none of these may be in it.
func ownPath(p string) string {
	strange := func(r rune) bool { return r == '\\' || !text.Printable(r) }
	if !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") || strings.ContainsFunc(p, strange) {
		return "/"
	}
	if u, err := url.Parse(p); err != nil || u.Host != "" || u.Scheme != "" {
		return "/"
	}
	return p
}

// address is where the request comes from, without the port.
func address(r *http.Request) string {
	h, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return h
}

func theme(r *http.Request) string {
	c, err := r.Cookie(themeCookie)
	if err != nil || (c.Value != "light" && c.Value != "dark") {
		return ""
	}
	return c.Value
}

func (s *Web) setTheme(v *visit) error {
	switch t := v.r.FormValue("theme"); t {
	case "light", "dark":
		s.setCookie(v.w, themeCookie, t, 365*24*time.Hour)
	default:
		s.setCookie(v.w, themeCookie, "", -1)
	}
	return back(v, whence(v.r, "/"))
}

// whence is the page of ours a form was posted from.
func whence(r *http.Request, otherwise string) string {
	if u, err := url.Parse(r.Referer()); err == nil && u.Path != "" {
		return ownPath(u.RequestURI())
	}
	return otherwise
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
