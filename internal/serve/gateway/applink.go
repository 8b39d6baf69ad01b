package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

const (
	// LinkTTL is how long a link to a port is valid; appSession is how long a browser has access after opening one.
	LinkTTL    = 5 * time.Minute
	appSession = 12 * time.Hour
)

// App is an HTTP port of a rank.
type App struct {
	Cluster id.Cluster
	Rank    int
	Port    int
}

// label returns the app's name under the apps' domain: port-rank-cluster. It omits the id's prefix, because names must
// not contain underscores.
func (a App) label() string {
	_, short, _ := strings.Cut(a.Cluster.String(), "_")
	return fmt.Sprintf("%d-%d-%s", a.Port, a.Rank, short)
}

func parseLabel(label string) (a App, err error) {
	parts := strings.SplitN(label, "-", 3)
	if len(parts) != 3 {
		return a, fault.New(fault.NotFound, "not an app's name")
	}
	if a.Port, err = strconv.Atoi(parts[0]); err != nil || a.Port < 1 || a.Port > 65535 {
		return a, fault.New(fault.NotFound, "not an app's port")
	}
	if a.Rank, err = strconv.Atoi(parts[1]); err != nil || a.Rank < 0 {
		return a, fault.New(fault.NotFound, "not a rank")
	}
	a.Cluster, err = id.Parse[id.Cluster]("cl_" + parts[2])
	return a, err
}

// pass gives a browser access to one app. It is signed but not encrypted, because it contains nothing secret.
type pass struct {
	Kind    string     `json:"k"` // passLink or passCookie
	App     string     `json:"a"` // label
	Org     id.Org     `json:"o"`
	User    id.User    `json:"u"`
	Token   id.Token   `json:"t"`
	Session id.Session `json:"s"`
	Expires int64      `json:"e"` // unix seconds
}

// visitor returns the visitor that the pass identifies.
func (v pass) visitor(r *http.Request, app App) Visitor {
	return Visitor{
		Org:     v.Org,
		User:    v.User,
		Token:   v.Token,
		Session: v.Session,
		Address: r.RemoteAddr,
		Cluster: app.Cluster,
		Rank:    app.Rank,
	}
}

const (
	passLink   = "link"
	passCookie = "cookie"
)

func (p *Apps) sign(v pass) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen with these types
	}
	return base64.RawURLEncoding.EncodeToString(b) + "." + base64.RawURLEncoding.EncodeToString(p.mac(b))
}

func (p *Apps) mac(b []byte) []byte { return p.cfg.Box.MAC(signed(b)) }

func signed(b []byte) []byte { return append([]byte("muster-app-v1|"), b...) }

// verify verifies and decodes a pass of the given kind for an app.
func (p *Apps) verify(text, kind, app string) (pass, bool) {
	var v pass
	body, sum, _ := strings.Cut(text, ".")
	b, err := base64.RawURLEncoding.DecodeString(body)
	s, err2 := base64.RawURLEncoding.DecodeString(sum)
	if err != nil || err2 != nil || !p.cfg.Box.Verify(signed(b), s) || json.Unmarshal(b, &v) != nil {
		return v, false
	}
	return v, v.Kind == kind && v.App == app && p.cfg.Now().Unix() < v.Expires
}

// Link returns an address that gives anyone who opens it within LinkTTL access to the app, with the visitor's identity.
// Whether the rank is running is checked when the link is opened, not here.
func (p *Apps) Link(v Visitor, port int) (string, error) {
	if p.cfg.Domain == "" {
		return "", fault.New(fault.NotFound, "this platform shows no ports to browsers: use muster cluster port-forward")
	}
	if port < 1 || port > 65535 {
		return "", fault.InvalidField("port", "is a number from 1 to 65535")
	}
	label := App{v.Cluster, v.Rank, port}.label()
	t := p.sign(pass{
		Kind:    passLink,
		App:     label,
		Org:     v.Org,
		User:    v.User,
		Token:   v.Token,
		Session: v.Session,
		Expires: p.cfg.Now().Add(LinkTTL).Unix(),
	})
	return (&url.URL{
		Scheme:   p.scheme(),
		Host:     label + "." + p.cfg.Domain,
		Path:     openPath,
		RawQuery: url.Values{"pass": {t}}.Encode(),
	}).String(), nil
}

func (p *Apps) scheme() string {
	if p.cfg.Secure {
		return "https"
	}
	return "http"
}

// openPath is the only path of an app's origin that the gateway itself serves.
const openPath = "/.muster/open"

// cookieName returns the cookie's name. With https it has the prefix that binds the cookie to its exact host.
func (p *Apps) cookieName() string {
	if p.cfg.Secure {
		return "__Host-muster_app"
	}
	return "muster_app"
}

func (p *Apps) cookie(v pass) *http.Cookie {
	v.Kind, v.Expires = passCookie, p.cfg.Now().Add(appSession).Unix()
	return &http.Cookie{Name: p.cookieName(), Value: p.sign(v), Path: "/", HttpOnly: true, Secure: p.cfg.Secure,
		SameSite: http.SameSiteLaxMode, MaxAge: int(appSession / time.Second)}
}

// known returns the valid pass in a request's cookies. It skips cookies of the same name that another app has set for
// the whole domain: they are signed for that app and give no access to this one.
func (p *Apps) known(r *http.Request, app string) (pass, bool) {
	for _, c := range r.CookiesNamed(p.cookieName()) {
		if v, ok := p.verify(c.Value, passCookie, app); ok {
			return v, true
		}
	}
	return pass{}, false
}
