package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/fleet/dialback"
	"github.com/musterhq/muster/internal/id"
)

// A browser sends an app's cookie with what pages of other apps ask for, since all are of one site. Only the app's own
// pages, those of its cluster, and people get through with it; and no one after the cookie's time.
func TestOtherAppsDoNotUseTheCookie(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	p := newTestApps(t, 1, &now)
	reached := 0
	p.nodes.open = func(context.Context, nodeKey) (*dialback.Node, error) {
		reached++
		return nil, errors.New("the test has no hosts")
	}
	app := App{id.New[id.Cluster](), 0, 8888}
	mate, foreign := App{app.Cluster, 1, 3000}, App{id.New[id.Cluster](), 0, 8888}
	at := func(a App) string { return "https://" + a.label() + ".apps.muster.example" }
	cookie := p.cookie(pass{App: app.label(), Org: id.New[id.Org](), User: id.New[id.User]()})
	try := func(method string, header http.Header) (through bool, status int) {
		r := httptest.NewRequest(method, at(app)+"/api/kernels", nil)
		r.Header = header
		r.AddCookie(cookie)
		w := httptest.NewRecorder()
		before := reached
		p.ServeHTTP(w, r)
		return reached > before, w.Code
	}
	header := func(text string) http.Header {
		h := http.Header{}
		for _, f := range strings.Fields(text) {
			name, value, _ := strings.Cut(f, "=")
			h.Set(name, value)
		}
		return h
	}
	const navigation = " Sec-Fetch-Mode=navigate Sec-Fetch-Dest=document"
	for _, tc := range []struct {
		name, method, header string
		through              bool
	}{
		{"a program", "POST", "", true},
		{"the app's own page", "POST", "Sec-Fetch-Site=same-origin Origin=" + at(app), true},
		{"the app's own page in an old browser", "POST", "Origin=" + at(app), true},
		{"its WebSocket", "GET", "Connection=Upgrade Upgrade=websocket Sec-Fetch-Site=same-origin " +
			"Sec-Fetch-Mode=websocket Origin=" + at(app), true},
		{"a typed address", "GET", "Sec-Fetch-Site=none" + navigation, true},
		{"a link on another site", "GET", "Sec-Fetch-Site=cross-site" + navigation, true},
		{"a link in another app", "GET", "Sec-Fetch-Site=same-site" + navigation, true},
		{"a page of another port of the cluster", "POST", "Sec-Fetch-Site=same-site Origin=" + at(mate), true},
		{"a form in another app", "POST", "Sec-Fetch-Site=same-site" + navigation + " Origin=" + at(foreign), false},
		{"a request of another app", "GET", "Sec-Fetch-Site=same-site Sec-Fetch-Mode=cors Origin=" + at(foreign), false},
		{"the same in an old browser", "GET", "Origin=" + at(foreign), false},
		{"a picture in another app", "GET", "Sec-Fetch-Site=same-site Sec-Fetch-Mode=no-cors Sec-Fetch-Dest=image", false},
		{"a frame in another app", "GET", "Sec-Fetch-Site=same-site Sec-Fetch-Mode=navigate Sec-Fetch-Dest=iframe", false},
		{"another app's WebSocket", "GET", "Connection=Upgrade Upgrade=websocket Sec-Fetch-Site=same-site " +
			"Sec-Fetch-Mode=websocket Origin=" + at(foreign), false},
		{"another app's WebSocket in an old browser", "GET", "Connection=Upgrade Upgrade=websocket Origin=" + at(foreign),
			false},
		{"another site", "POST", "Sec-Fetch-Site=cross-site Origin=https://evil.example", false},
		{"a page without an origin", "POST", "Sec-Fetch-Site=cross-site Origin=null", false},
		{"the app's name without encryption", "POST", "Origin=http" + strings.TrimPrefix(at(app), "https"), false},
		{"a name that ends like it", "POST", "Origin=https://evil.example/." + app.label() + ".apps.muster.example", false},
	} {
		through, status := try(tc.method, header(tc.header))
		if through != tc.through || !through && status != http.StatusForbidden {
			t.Errorf("%s: got through: %v, status %d", tc.name, through, status)
		}
	}
	now = now.Add(appSession)
	if through, status := try("GET", header("Sec-Fetch-Site=none"+navigation)); through || status != http.StatusForbidden {
		t.Errorf("after the cookie's time: got through: %v, status %d", through, status)
	}
}
