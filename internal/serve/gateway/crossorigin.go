package gateway

import (
	"net/http"
	"net/url"
	"strings"
)

// sameOrigin reports whether a request that brings an app's cookie may have it. All apps are names below one domain, so
// to a browser they are one site: it sends the cookie along with whatever a page of any other app asks for, and an app
// that is somebody else's may be hostile. Let in are requests of the app's own pages, of apps of the same cluster, what
// people typed or followed (a navigation of the whole window, which changes nothing), and programs that are no browser:
// those bring a cookie on purpose.
func (p *Apps) sameOrigin(r *http.Request, app App) bool {
	origin := r.Header.Get("Origin")
	if origin != "" && p.ofCluster(origin, app) {
		return true
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return true
	case "": // an old browser, or none
		return origin == "" || p.isAt(origin, r.Host)
	}
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead
	return safe && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

func (p *Apps) isAt(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Scheme == p.scheme() && u.Host != "" && strings.EqualFold(u.Host, host)
}

// ofCluster reports whether an origin is an app of the same cluster: a page on one port may call a server on another.
func (p *Apps) ofCluster(origin string, app App) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != p.scheme() {
		return false
	}
	label, ok := p.label(&http.Request{Host: u.Host})
	if !ok {
		return false
	}
	other, err := parseLabel(label)
	return err == nil && other.Cluster == app.Cluster
}
