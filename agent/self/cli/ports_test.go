package cli

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/musterhq/muster/agent/net/link"
	"github.com/musterhq/muster/agent/self/update"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/serve/relay"
)

func openPorts() ports {
	return ports{
		UDP: udpPorts{Low: 32768, High: 60999, Taken: 3},
		Reach: &link.Reach{
			Platform: link.Reached{Address: "https://agents.example:8443"},
			Known:    true,
			Link:     []link.Reached{{Address: "tls://agents.example:4222"}},
			Relays:   []link.Reached{{Address: "a.example:3478"}, {Address: "b.example:3478"}},
		},
	}
}

// field is a platform on loopback: its HTTPS, its link and one relay.
type field struct {
	*httptest.Server
	known  agentapi.Endpoints
	old    bool // it does not say where hosts connect
	caFile string
}

func newField(t *testing.T) *field {
	t.Helper()
	f := &field{}
	f.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.old || r.URL.Path != agentapi.EndpointsPath {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(f.known)
	}))
	t.Cleanup(f.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	f.caFile = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(f.caFile, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := server.NewServer(&server.Options{
		Host:      "127.0.0.1",
		Port:      -1,
		NoSigs:    true,
		NoLog:     true,
		Users:     []*server.User{{Username: "server", Password: "x"}},
		TLSConfig: &tls.Config{Certificates: f.TLS.Certificates, MinVersion: tls.VersionTLS12},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("NATS does not start")
	}
	r, err := relay.Start(relay.Config{
		Listen: "127.0.0.1:0",
		Secret: make([]byte, 32),
		Log:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(t.Context()) })
	f.known = agentapi.Endpoints{
		NATS:   []string{"tls://" + s.Addr().String()},
		NATSCA: string(ca),
		Relays: []string{r.Addr().String()},
	}
	return f
}

// silent is a UDP address that takes what comes and answers nothing.
func silent(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.LocalAddr().String()
}

// mute is a TCP address whose connections open and say nothing, as behind a firewall that swallows what is sent.
func mute(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// look returns what LookAround finds. It waits only briefly for addresses that do not answer; wait is for tests of
// that.
func (f *field) look(t *testing.T, wait time.Duration) (r link.Reach) {
	t.Helper()
	ca, err := os.ReadFile(f.caFile)
	if err == nil {
		r, err = link.LookAround(t.Context(), link.ReachConfig{URL: f.URL, CA: ca, Wait: wait})
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// states are the findings of ports by check.
func states(p ports) map[string]finding {
	out := map[string]finding{}
	for _, f := range p.diagnose() {
		out[f.Check] = f
	}
	return out
}

// The doctor goes to a platform's every port, and finds all open.
func TestOpenPorts(t *testing.T) {
	t.Parallel()
	f := newField(t)
	p, err := portFlags{url: f.URL, ca: f.caFile, state: t.TempDir()}.ports(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range []string{"platform", "link", "relay"} {
		if s := states(p)[check]; s.State != "ok" {
			t.Errorf("%s: %+v", check, s)
		}
	}
	if p.UDP.Low < 1 || p.UDP.High <= p.UDP.Low {
		t.Errorf("%+v", p.UDP)
	}
}

// For each closed port, the doctor says which port to open.
func TestClosedPorts(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.known.NATS, f.known.Relays = []string{"tls://" + mute(t)}, []string{silent(t)}
	r := f.look(t, 100*time.Millisecond) // they never answer, however long one waits
	got := states(ports{Reach: &r})
	if s := got["platform"]; s.State != "ok" {
		t.Errorf("%+v", s)
	}
	for check, want := range map[string]string{
		"link":  portOf("TCP", f.known.NATS[0]),
		"relay": portOf("UDP", f.known.Relays[0]),
	} {
		if s := got[check]; s.State == "ok" || !strings.Contains(s.Remedy, want) ||
			!strings.Contains(s.Found, strings.Fields(want)[1]) {
			t.Errorf("%s: %+v", check, s)
		}
	}
}

// An older platform, one with an untrusted certificate, and a server that is not the platform are distinguished.
func TestOtherPlatforms(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.old = true
	r := f.look(t, 0)
	if got := states(ports{Reach: &r}); got["platform"].State != "ok" || got["link"].Check != "" ||
		got["relay"].State != "ok" {
		t.Errorf("of before: %+v", got)
	}
	p, err := portFlags{url: f.URL, state: t.TempDir()}.ports(t.Context()) // verified with the system's roots
	if s := states(p)["platform"]; err != nil || s.State != "bad" || !strings.Contains(s.Found, "certificate") ||
		!strings.Contains(s.Remedy, portOf("TCP", f.URL)) {
		t.Errorf("not verified: %v %+v", err, s)
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = w.Write([]byte("<html>log in</html>"))
	}))
	defer page.Close()
	p, err = portFlags{url: page.URL, state: t.TempDir()}.ports(t.Context())
	if s := states(p)["platform"]; err != nil || s.State != "bad" || !strings.Contains(s.Found, "not the platform") {
		t.Errorf("a page to log in: %v %+v", err, s)
	}
	if _, err := (portFlags{url: "http://agents.example", state: t.TempDir()}).ports(t.Context()); err == nil {
		t.Error("an address that no host may enrol at")
	}
}

// When an updating agent runs its successor's doctor, the doctor skips the network, which may be away for a moment.
func TestPortsAreNotLookedAtForUpdates(t *testing.T) {
	t.Setenv(update.LaunchedEnv, "1")
	p, err := portFlags{state: t.TempDir()}.ports(t.Context())
	if got := states(p); err != nil || len(got) != 1 || got["ports"].State != "ok" {
		t.Errorf("%v %+v", err, got)
	}
	t.Setenv(update.LaunchedEnv, "")
	p, err = portFlags{state: t.TempDir()}.ports(t.Context())
	if got := states(p); err != nil || got["platform"].State != "warn" || !strings.Contains(got["platform"].Remedy,
		"--url") {
		t.Errorf("%v %+v", err, got)
	}
}

// Ports in the range the kernel gives out are counted once, whichever family listens.
func TestUDPPortsTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
		"net/udp": "  sl  local_address rem_address   st\n  12: 0100007F:8000 00000000:0000 07\n " +
			" 13: 00000000:9000 00000000:0000 07\n  14: 00000000:0035 00000000:0000 07\n",
		"net/udp6": "  sl  local_address\n  1: 00000000000000000000000000000000:9000 0:0 07\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := readUDP(dir); got != (udpPorts{32768, 60999, 2}) {
		t.Errorf("%+v", got)
	}
	if got := readUDP(t.TempDir()); got != (udpPorts{}) {
		t.Errorf("%+v", got)
	}
}

func TestPortOf(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://agents.example":    "TCP 443 to agents.example",
		"tls://agents.example:4223": "TCP 4223 to agents.example",
		"tls://agents.example":      "TCP 4222 to agents.example",
		"relay.example:3478":        "TCP 3478 to relay.example",
		"[2001:db8::1]:3478":        "TCP 3478 to 2001:db8::1",
	} {
		if got := portOf("TCP", address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
