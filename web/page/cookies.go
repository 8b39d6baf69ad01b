package page

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/text"
)

const ThemeCookie = "muster_theme"

// SessionCookie is the name of the cookie with the session's secret. Over https the prefix makes browsers take it only
// from this very host: no other host of the domain, such as one that shows what renters run, can set one.
func (s *Site) SessionCookie() string {
	if s.secure {
		return "__Host-muster_session"
	}
	return "muster_session"
}

// recognise finds out who visits. A session that is over is no error: the visitor is nobody, and the cookie goes.
func (s *Site) recognise(v *Visit) error {
	c, err := v.R.Cookie(s.SessionCookie())
	if err != nil {
		return nil
	}
	v.Who, err = s.Accounts.SessionPrincipal(v.R.Context(), c.Value)
	if fault.Is(err, fault.Unauthorized) {
		s.SetCookie(v.W, s.SessionCookie(), "", -1)
		return nil
	}
	if err != nil {
		return err
	}
	v.Who.Address = Address(v.R)
	// The secret changes now and then. Live streams cannot set a cookie any more once they answer, so not there.
	if v.R.Header.Get("Accept") != "text/event-stream" {
		fresh, err := s.Accounts.RotateSession(v.R.Context(), c.Value)
		if err != nil {
			return err
		}
		if fresh != "" {
			s.SetCookie(v.W, s.SessionCookie(), fresh, 90*24*time.Hour)
		}
	}
	return nil
}

// SetCookie writes one of our cookies; a negative age removes it.
func (s *Site) SetCookie(w http.ResponseWriter, name, value string, age time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: int(age.Seconds()),
		HttpOnly: true, Secure: s.secure, SameSite: http.SameSiteLaxMode,
	})
}

// ToSignIn sends a visitor to sign in and back here afterwards. A form that was posted meanwhile is not repeated.
func (s *Site) ToSignIn(v *Visit) {
	next := v.R.URL.RequestURI()
	if v.R.Method != http.MethodGet {
		next = "/"
	}
	http.Redirect(v.W, v.R, "/signin?next="+url.QueryEscape(next), http.StatusSeeOther)
}

// OwnPath is p when it is a path of this site, else the start page: nobody is sent elsewhere by a link of ours.
// Browsers drop tabs and line ends from an address and take a backslash for a slash, so none of these may be in it.
func OwnPath(p string) string {
	strange := func(r rune) bool { return r == '\\' || !text.Printable(r) }
	if !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") || strings.ContainsFunc(p, strange) {
		return "/"
	}
	if u, err := url.Parse(p); err != nil || u.Host != "" || u.Scheme != "" {
		return "/"
	}
	return p
}

// Address is where the request comes from, without the port.
func Address(r *http.Request) string {
	h, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return h
}

func theme(r *http.Request) string {
	c, err := r.Cookie(ThemeCookie)
	if err != nil || (c.Value != "light" && c.Value != "dark") {
		return ""
	}
	return c.Value
}

// Whence is the page of ours a form was posted from.
func Whence(r *http.Request, otherwise string) string {
	if u, err := url.Parse(r.Referer()); err == nil && u.Path != "" {
		return OwnPath(u.RequestURI())
	}
	return otherwise
}
