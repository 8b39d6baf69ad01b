package web

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/text"
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

// whence is the page of ours a form was posted from.
func whence(r *http.Request, otherwise string) string {
	if u, err := url.Parse(r.Referer()); err == nil && u.Path != "" {
		return ownPath(u.RequestURI())
	}
	return otherwise
}
