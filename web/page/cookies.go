package page

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/metrics"
	"github.com/musterhq/muster/internal/text"
)

const ThemeCookie = "muster_theme"

// SessionCookie returns the name of the cookie with the session's secret. Over https the prefix makes browsers accept
// it only from this host: no other host of the domain, such as one that shows what renters run, can set it.
func (s *Site) SessionCookie() string {
	if s.secure {
		return "__Host-muster_session"
	}
	return "muster_session"
}

// recognise sets the visitor from the session cookie. An expired session is not an error: the visitor is not signed in,
// and the cookie is removed.
func (s *Site) recognise(v *Visit) error {
	c, err := v.R.Cookie(s.SessionCookie())
	if err != nil {
		return nil
	}
	v.Who, err = s.Accounts.Sessions.Principal(v.R.Context(), c.Value)
	if fault.Is(err, fault.Unauthorized) {
		s.SetCookie(v.W, s.SessionCookie(), "", -1)
		return nil
	}
	if err != nil {
		return err
	}
	v.Who.Address = Address(v.R)
	metrics.From(v.R.Context(), v.Who.LogAttrs()...)
	// Rotate the secret from time to time, but not on live streams: they cannot set a cookie after the response has begun.
	if v.R.Header.Get("Accept") != "text/event-stream" {
		fresh, err := s.Accounts.Sessions.Rotate(v.R.Context(), c.Value)
		if err != nil {
			return err
		}
		if fresh != "" {
			s.SetCookie(v.W, s.SessionCookie(), fresh, 90*24*time.Hour)
		}
	}
	return nil
}

// SetCookie sets a cookie; a negative age removes it.
func (s *Site) SetCookie(w http.ResponseWriter, name, value string, age time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: int(age.Seconds()),
		HttpOnly: true, Secure: s.secure, SameSite: http.SameSiteLaxMode,
	})
}

// ToSignIn redirects to the sign-in page, which redirects back afterwards. A posted form is not repeated.
func (s *Site) ToSignIn(v *Visit) {
	next := v.R.URL.RequestURI()
	if v.R.Method != http.MethodGet {
		next = "/"
	}
	http.Redirect(v.W, v.R, "/signin?next="+url.QueryEscape(next), http.StatusSeeOther)
}

// OwnPath returns p if it is a path of this site, and "/" otherwise, so that no link of ours redirects elsewhere.
// Browsers drop tabs and line ends from a URL and read a backslash as a slash, so p must contain none of them.
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

// Address returns the address of the client, without the port.
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

// Whence returns the page of this site that posted the form, or otherwise.
func Whence(r *http.Request, otherwise string) string {
	if u, err := url.Parse(r.Referer()); err == nil && u.Path != "" {
		return OwnPath(u.RequestURI())
	}
	return otherwise
}
