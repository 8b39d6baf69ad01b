package hostlink_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// wakeable returns a site and a connected host whose agent accepts a state with a wake, at the host's revision 3.
func wakeable(t *testing.T, capabilities ...string) (*site, *agent, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	s := &site{t: t, d: dbtest.New(t)}
	s.org, s.user = fleettest.Org(t, s.d)
	cfg := config()
	cfg.Log = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s.link, s.w = start(t, s.d, cfg)
	a := s.enroll()
	if r := a.sync(agentapi.Sync{Full: true, Seq: 1, Capabilities: capabilities}); r.StatusAck != 1 {
		t.Fatalf("%+v", r)
	}
	if _, err := s.d.Pool.Exec(t.Context(), "UPDATE host SET revision = 3 WHERE id = $1", a.Host); err != nil {
		t.Fatal(err)
	}
	return s, a, log
}

// The agent has its command with the wake: no report is sent in between.
func TestWake_CarriesTheState(t *testing.T) {
	t.Parallel()
	s, a, _ := wakeable(t, agentapi.CapWakeState)
	before := s.w.reports()
	s.link.Bus().Wake(a.Host, 3)
	w := within(t, "a wake", a.wakes)
	if w.Revision != 3 || w.Desired == nil || w.Desired.Revision != 3 || w.Desired.ControlEpoch != 1 ||
		len(w.Desired.Leases) != 1 || w.Desired.Leases[0].Image != "wanted" {
		t.Errorf("%+v", w)
	}
	if n := s.w.reports(); n != before {
		t.Errorf("%d reports in between", n-before)
	}
}

func TestWake_AgentOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	s, a, _ := wakeable(t)
	s.link.Bus().Wake(a.Host, 3)
	if w := within(t, "a wake", a.wakes); w.Revision != 3 || w.Desired != nil {
		t.Errorf("%+v", w)
	}
}

func TestWake_ALargeStateIsAskedFor(t *testing.T) {
	t.Parallel()
	s, a, _ := wakeable(t, agentapi.CapWakeState)
	s.w.envBytes = 128 << 10
	s.link.Bus().Wake(a.Host, 3)
	if w := within(t, "a wake", a.wakes); w.Revision != 3 || w.Desired != nil {
		t.Errorf("revision %d, with a state: %t", w.Revision, w.Desired != nil)
	}
}

// A state with secrets reaches its host alone, and no log.
func TestWake_SecretsReachOnlyTheirHost(t *testing.T) {
	t.Parallel()
	s, a, log := wakeable(t, agentapi.CapWakeState)
	other := s.enroll()
	heard := make(chan *nats.Msg, 1)
	if _, err := other.nc.ChanSubscribe(agentapi.SubjectWake(a.Host.String()), heard); err != nil {
		t.Fatal(err)
	}
	err := within(t, "a refusal", other.errs)
	if !strings.Contains(err.Error(), "Permissions Violation for Subscription") {
		t.Errorf("another host's wakes: %v", err)
	}
	s.w.envBytes = 5000
	s.link.Bus().Wake(a.Host, 3)
	data, err := json.Marshal(within(t, "a wake", a.wakes))
	if err != nil || !bytes.Contains(data, []byte("xxxxx")) {
		t.Fatalf("no secret came: %v", err)
	}
	s.link.Bus().Wake(other.Host, 1)
	within(t, "the other host's own wake, sent later", other.wakes)
	if len(heard) > 0 {
		t.Error("another host received the state")
	}
	if err := s.link.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), "xxxxx") {
		t.Error("the log contains the secret")
	}
}
