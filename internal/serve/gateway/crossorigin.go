package gateway

import (
	"net/http"
	"net/url"
	"strings"
)

// sameOrigin reports whether a request that carries an app's cookie may use it. All apps are names under one domain, so
// a browser regards them as one site and sends the cookie with requests from the pages of any other app, which may be
// hostile. Accepted are requests from the app's own pages, from apps of the same cluster, from addresses that a person
// typed or links that they followed (a navigation of the whole window, which changes nothing), and from programs other
// than browsers, which send a cookie only deliberately.
func (p *Apps) sameOrigin(r *http.Request, app App) bool {
	origin := r.Header.Get("Origin")
	if origin != "" && p.ofCluster(origin, app) {
		return true
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return true
	case "": // an old browser or another program
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
