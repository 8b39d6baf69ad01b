package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// errNotPublic is returned for connections to addresses that are not public.
var errNotPublic = errors.New("the registry leads to an address that is not public")

// errPlain is returned for requests that would not be encrypted.
var errPlain = errors.New("the registry leads to a connection without encryption")

// maxAnswer limits every response that is not a blob: manifests, tokens, error texts.
const maxAnswer = 8 << 20

// guard makes all connections of the proxy. It checks every connection after name resolution, so that a registry cannot
// direct requests to the host's own services: not by its address, a redirect, the name of an authorisation server, or a
// name that resolves differently the second time.
type guard struct {
	allow map[string]bool // exact host:port that may have any address and use plain HTTP
	next  http.RoundTripper

	received atomic.Int64           // bytes received over the host's line
	counts   func(to net.Addr) bool // whether a connection uses the host's line to the internet
}

func newGuard(allow []string) *guard {
	g := &guard{allow: map[string]bool{}, counts: func(to net.Addr) bool { return checkPublic(to.String()) == nil }}
	for _, a := range allow {
		g.allow[a] = true
	}
	next := PublicOnly(allow)
	dial := next.DialContext
	next.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil || !g.counts(c.RemoteAddr()) {
			return c, err
		}
		return counted{c, &g.received}, nil
	}
	g.next = next
	return g
}

// PublicOnly returns a dialer that connects to public addresses only, except for the given exact host:port.
func PublicOnly(allow []string) *http.Transport {
	plain := &net.Dialer{Timeout: 10 * time.Second}
	public := &net.Dialer{
		Timeout: 10 * time.Second,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			return checkPublic(address)
		},
	}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if slices.Contains(allow, addr) {
				return plain.DialContext(ctx, network, addr)
			}
			return public.DialContext(ctx, network, addr)
		},
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   8,
	}
}

// RoundTrip is called for every request, including redirects.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && !g.allow[req.URL.Host] {
		return nil, errPlain
	}
	res, err := g.next.RoundTrip(req)
	if err == nil && !forBlob(req) {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxAnswer), res.Body}
	}
	return res, err
}

// forBlob reports whether a request, or the request that redirected to it, is for a blob.
func forBlob(req *http.Request) bool {
	for req != nil {
		if strings.Contains(req.URL.Path, "/blobs/") {
			return true
		}
		if req.Response == nil {
			return false
		}
		req = req.Response.Request
	}
	return false
}

// These are special ranges that net/netip does not classify.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("168.63.129.16/32"),
	netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"),
}

var globalUnicast6 = netip.MustParsePrefix("2000::/3")

// public reports whether an address is on the internet.
func public(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsGlobalUnicast() || a.IsPrivate() || (a.Is6() && !globalUnicast6.Contains(a)) {
		return false
	}
	for _, p := range notPublic {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// checkPublic refuses addresses that are not public, and the host's own.
func checkPublic(address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", errNotPublic, address)
	}
	a := ap.Addr().Unmap().WithZone("")
	if !public(a) {
		return errNotPublic
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("%w: the host does not report its own", errNotPublic)
	}
	for _, o := range own {
		if p, err := netip.ParsePrefix(o.String()); err == nil && p.Addr().Unmap() == a {
			return errNotPublic
		}
	}
	return nil
}
