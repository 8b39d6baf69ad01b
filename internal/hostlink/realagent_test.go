package hostlink_test

import (
	"encoding/pem"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/musterhq/muster/agent/link"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/dbtest"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/host/hosttest"
)

// The agent's own enrolment and connection against this server.
func TestTheRealAgentsLink(t *testing.T) {
	t.Parallel()
	s := &site{t: t, d: dbtest.New(t)}
	s.org, s.user = hosttest.Org(t, s.d)
	srv := httptest.NewUnstartedServer(nil)
	cfg := config()
	cfg.Origins = []string{"https://" + srv.Listener.Addr().String()}
	s.link, s.w = start(t, s.d, cfg)
	srv.Config.Handler = s.link.EnrollHandler()
	srv.StartTLS()
	defer srv.Close()

	enroll := func(token string) (*link.Identity, error) {
		return link.Enroll(t.Context(), link.EnrollConfig{
			URL: srv.URL, Token: token, StateDir: t.TempDir(), Inventory: hosttest.Inventory(1),
			CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
		})
	}
	token := hosttest.Token(t, s.d, s.org, s.user, "real")
	who, err := enroll(token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := enroll(token); !fault.Is(err, fault.Conflict) {
		t.Errorf("a used token: %v", err)
	}
	up, wakes := make(chan struct{}, 8), make(chan agentapi.Wake, 8)
	connect := func() *link.Conn {
		t.Helper()
		c := link.New(who, slog.New(slog.DiscardHandler))
		if err := c.Start(link.Handlers{
			Wake: func(w agentapi.Wake) { wakes <- w }, Dial: func(agentapi.Dial) {}, Up: func() { up <- struct{}{} },
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	c := connect()
	within(t, "connected", up)
	if err := c.Inventory(t.Context(), hosttest.Inventory(2)); err != nil {
		t.Error(err)
	}
	r, err := c.Sync(t.Context(), agentapi.Sync{Protocol: agentapi.Protocol, BootID: "boot", ControlEpoch: 1, Full: true, Seq: 9})
	if err != nil || r.StatusAck != 9 || r.Error != "" {
		t.Errorf("%+v, %v", r, err)
	}
	s.link.Bus().Wake(who.Host, 7)
	if w := within(t, "a wake", wakes); w.Revision != 7 {
		t.Errorf("%+v", w)
	}
	// A copy of the host's disk: refused while the host is connected, let in after.
	connect()
	eventually(t, "an alert", func() bool { return s.alerts("host.second_connection") == 1 })
	c.Close()
	within(t, "the copy connects", up)
}
