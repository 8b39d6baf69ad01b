package gateway

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/seal"
)

func newTestApps(t *testing.T, secret byte, now *time.Time) *Apps {
	t.Helper()
	box, err := seal.NewBox(bytes.Repeat([]byte{secret}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return NewApps(New(Config{}), AppsConfig{
		Domain: "apps.muster.example",
		Secure: true,
		Box:    box,
		Now:    func() time.Time { return *now },
	})
}

// A pass lets in to one app, in one way, for its time, and only if we signed it.
func TestAPassIsForOneApp(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	p, other := newTestApps(t, 1, &now), newTestApps(t, 2, &now)
	v := Visitor{Org: id.New[id.Org](), User: id.New[id.User](), Cluster: id.New[id.Cluster](), Rank: 1}
	link, err := p.Link(v, 8888)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "https" || !strings.HasSuffix(u.Host, ".apps.muster.example") {
		t.Fatalf("%s %v", link, err)
	}
	label, ok := p.label(&http.Request{Host: u.Host})
	app, err := parseLabel(label)
	if !ok || err != nil || app != (App{v.Cluster, 1, 8888}) {
		t.Fatalf("%q is %+v, %v", label, app, err)
	}
	text := u.Query().Get("pass")
	if got, ok := p.verify(text, passLink, label); !ok || got.Org != v.Org || got.User != v.User {
		t.Fatalf("%+v %v", got, ok)
	}
	rotated := newTestApps(t, 2, &now)
	if rotated.cfg.Box, err = seal.NewRotatingBox(bytes.Repeat([]byte{2}, 32), bytes.Repeat([]byte{1}, 32)); err != nil {
		t.Fatal(err)
	}
	if !second(rotated.verify(text, passLink, label)) {
		t.Error("a pass does not outlive the change of the platform's secret")
	}
	for name, bad := range map[string]bool{
		"another app":     second(p.verify(text, passLink, App{v.Cluster, 0, 8888}.label())),
		"another port":    second(p.verify(text, passLink, App{v.Cluster, 1, 8889}.label())),
		"as a cookie":     second(p.verify(text, passCookie, label)),
		"another's":       second(other.verify(text, passLink, label)),
		"altered":         second(p.verify("A"+text[1:], passLink, label)),
		"without its sum": second(p.verify(strings.Split(text, ".")[0], passLink, label)),
		"nothing":         second(p.verify("", passLink, label)),
	} {
		if bad {
			t.Errorf("it let in: %s", name)
		}
	}
	now = now.Add(LinkTTL)
	if _, ok := p.verify(text, passLink, label); ok {
		t.Error("an old link let in")
	}
}

func second[A, B any](_ A, b B) B { return b }

// A stranger learns how to sign in, and nothing about the app.
func TestAppsWithoutAPass(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	p := newTestApps(t, 1, &now)
	for host, status := range map[string]int{
		App{id.New[id.Cluster](), 0, 80}.label() + ".apps.muster.example": http.StatusForbidden,
		"80-0-nonsense.apps.muster.example":                               http.StatusNotFound,
		"www.apps.muster.example":                                         http.StatusNotFound,
	} {
		r := httptest.NewRequest(http.MethodGet, "https://"+host+"/x", nil)
		w := httptest.NewRecorder()
		if !p.Serves(r) {
			t.Errorf("%s is not taken for an app", host)
		}
		if p.ServeHTTP(w, r); w.Code != status {
			t.Errorf("%s: %d, want %d", host, w.Code, status)
		}
	}
	for _, host := range []string{"muster.example", "apps.muster.example", "a.b.apps.muster.example",
		"evilapps.muster.example"} {
		if p.Serves(httptest.NewRequest(http.MethodGet, "https://"+host+"/", nil)) {
			t.Errorf("%s is taken for an app", host)
		}
	}
}

func TestDestinations(t *testing.T) {
	t.Parallel()
	cl := id.New[id.Cluster]()
	for name, rank := range map[string]int{cl.String(): 0, cl.String() + ".3": 3, cl.String() + "+12": 12} {
		if got, r, err := Destination(name); err != nil || got != cl || r != rank {
			t.Errorf("%s: %s %d %v", name, got, r, err)
		}
	}
	for _, name := range []string{"", "root", cl.String() + ".", cl.String() + ".-1", cl.String() + ".x",
		"host_" + cl.String()[3:]} {
		if _, _, err := Destination(name); err == nil {
			t.Errorf("%q is a destination", name)
		}
	}
}
