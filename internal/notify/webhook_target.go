package notify

import (
	"net/url"
	"strings"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/publicnet"
)

// checkURL refuses addresses that no webhook may have: anything but https with a host, and addresses that are not on
// the internet. A name is only resolved when something is sent: publicnet.Control decides then. With anyAddress, http
// and every address are accepted.
func checkURL(raw string, anyAddress bool) error {
	bad := func(why string) error { return fault.InvalidField("url", "%s", why) }
	u, err := url.Parse(raw)
	switch {
	case err != nil || len(raw) > 2000 || strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r > '~' }):
		return bad("is not an address such as https://example.com/muster")
	case u.Scheme != "https" && !(anyAddress && u.Scheme == "http"):
		return bad("has to begin with https://")
	case u.User != nil:
		return bad("must not contain a password: the signature proves who sends")
	case u.Fragment != "":
		return bad("must not contain #")
	case u.Hostname() == "":
		return bad("names no host")
	}
	if !anyAddress && !publicnet.Host(u.Hostname()) {
		return bad("is not an address on the internet")
	}
	return nil
}
