package hostlink_test

import (
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/net/link"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// The agent's own enrolment and connection against this server.
func TestTheRealAgentsLink(t *testing.T) {
	t.Parallel()
	s := &site{t: t, d: dbtest.New(t)}
	s.org, s.user = fleettest.Org(t, s.d)
	srv := httptest.NewUnstartedServer(nil)
	cfg := config()
	cfg.Origins = []string{"https://" + srv.Listener.Addr().String()}
	s.link, s.w = start(t, s.d, cfg)
	srv.Config.Handler = s.link.EnrollHandler()
	srv.StartTLS()
	defer srv.Close()

	enroll := func(token string) (*link.Identity, error) {
		return link.Enroll(t.Context(), link.EnrollConfig{
			URL: srv.URL, Token: token, StateDir: t.TempDir(), Inventory: fleettest.Inventory(1),
			CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
		})
	}
	token := fleettest.Token(t, s.d, s.org, s.user, "real")
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
	if err := c.Inventory(t.Context(), fleettest.Inventory(2)); err != nil {
		t.Error(err)
	}
	r, err := c.Sync(t.Context(), agentapi.Sync{
		Protocol:     agentapi.Protocol,
		BootID:       "boot",
		ControlEpoch: 1,
		Full:         true,
		Seq:          9,
	})
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

// Before it enrols, a host learns where hosts connect, and connects: the link asks it who it is, and a key that
// no one knows is all it shows.
func TestWhereHostsConnectIsTold(t *testing.T) {
	t.Parallel()
	s := &site{t: t, d: dbtest.New(t)}
	s.org, s.user = fleettest.Org(t, s.d)
	cfg := config()
	cfg.Relays = []string{"127.0.0.1:9"} // no one there
	s.link, s.w = start(t, s.d, cfg)
	mux := http.NewServeMux()
	mux.Handle(agentapi.EndpointsPath, s.link.EndpointsHandler())
	srv := httptest.NewTLSServer(mux)
	defer srv.Close()

	res, err := srv.Client().Get(srv.URL + agentapi.EndpointsPath)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var told agentapi.Endpoints
	if err := json.NewDecoder(res.Body).Decode(&told); err != nil || len(told.NATS) != 2 || told.NATSCA == "" ||
		!slices.Equal(told.Relays, cfg.Relays) {
		t.Fatalf("%+v, %v", told, err)
	}
	if res, err := srv.Client().Post(srv.URL+agentapi.EndpointsPath, "application/json", nil); err != nil ||
		res.StatusCode != 422 || res.Body.Close() != nil {
		t.Errorf("a POST: %v, %v", res, err)
	}
	r, err := link.LookAround(t.Context(), link.ReachConfig{
		URL:  srv.URL,
		Wait: 20 * time.Second,
		CA:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
	})
	if err != nil || r.Platform.Err != nil || !r.Known || len(r.Link) != 1 || r.Link[0].Err != nil ||
		r.Link[0].Address != told.NATS[0] {
		t.Errorf("%+v, %v", r, err)
	}
}
