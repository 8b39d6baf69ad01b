package hostlink

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// Whatever a host names as its inbox, an answer that is sent lies under its own prefix and is one literal subject.
func FuzzOwnInbox(f *testing.F) {
	h := id.New[id.Host]()
	prefix := agentapi.InboxPrefix(h.String())
	for _, s := range []string{prefix + ".x.y", prefix + ".>", prefix + ".*", prefix, prefix + "x.y", "host.other.in.x",
		prefix + ". x", prefix + ".", prefix + ".x..y", prefix + ".x."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if ownInbox(h, s) && (!strings.HasPrefix(s, prefix+".") || !server.IsValidLiteralSubject(s)) {
			t.Errorf("%q is taken", s)
		}
	})
}
