package link

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

const token = "a-one-time-token-of-the-test"

// platform answers enrolments with reply, or with a problem when it has one.
type platform struct {
	*httptest.Server
	t       *testing.T
	reply   agentapi.EnrollReply
	problem string
	got     agentapi.EnrollRequest
}

func newPlatform(t *testing.T) *platform {
	p := &platform{
		t:     t,
		reply: agentapi.EnrollReply{Host: id.New[id.Host]().String(), Name: "rack-1", StreamDomain: "muster.test"},
	}
	p.Server = httptest.NewTLSServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *platform) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.problem != "" {
		w.WriteHeader(http.StatusConflict)
		w.Write([]byte(p.problem))
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&p.got); err != nil || r.URL.Path != agentapi.EnrollPath {
		p.t.Errorf("%s: %v", r.URL, err)
	}
	json.NewEncoder(w).Encode(p.reply)
}

func (p *platform) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
}

func (p *platform) enroll(dir string) (*Identity, error) {
	return Enroll(p.t.Context(), EnrollConfig{URL: p.URL, Token: token, CA: p.ca(), StateDir: dir})
}

func TestEnrollProvesBothKeysAndKeepsThem(t *testing.T) {
	t.Parallel()
	p, dir := newPlatform(t), t.TempDir()
	i, err := p.enroll(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.got.Validate(); err != nil {
		t.Error(err)
	}
	proof := agentapi.EnrollProof(p.URL, token, p.got.LinkKey, p.got.AttestKey)
	if !ed25519.Verify(p.got.AttestKey, proof, p.got.Proof) {
		t.Error("the attestation key's proof is wrong")
	}
	public, err := nkeys.FromPublicKey(p.got.LinkKey)
	if err != nil || public.Verify(proof, p.got.LinkProof) != nil {
		t.Errorf("the link key's proof is wrong: %v", err)
	}
	again, err := Load(dir)
	if err != nil || again.Host != i.Host || again.Name != "rack-1" || !again.AttestKey().Equal(i.AttestKey()) {
		t.Errorf("loaded %+v, %v", again, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("files: %v %v", entries, err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", e.Name(), info.Mode(), err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, e.Name())); err != nil || strings.Contains(string(b), token) {
			t.Errorf("%s holds the token, or %v", e.Name(), err)
		}
	}
	if _, err := p.enroll(dir); !fault.Is(err, fault.Conflict) {
		t.Errorf("a second enrolment: %v", err)
	}
}

// An enrolment reports to the platform that the machine may vanish, and the agent keeps it.
func TestAnEphemeralMachineSaysSo(t *testing.T) {
	t.Parallel()
	for _, ephemeral := range []bool{true, false} {
		p, dir := newPlatform(t), t.TempDir()
		_, err := Enroll(t.Context(), EnrollConfig{URL: p.URL, Token: token, CA: p.ca(), StateDir: dir, Ephemeral: ephemeral})
		if err != nil {
			t.Fatal(err)
		}
		if i, err := Load(dir); err != nil || i.Ephemeral != ephemeral || p.got.Ephemeral != ephemeral {
			t.Errorf("%t: sent %t, stored %+v, %v", ephemeral, p.got.Ephemeral, i, err)
		}
	}
}

func TestARefusedEnrolmentSaysWhyAndCanBeRepeated(t *testing.T) {
	t.Parallel()
	p, dir := newPlatform(t), t.TempDir()
	p.problem = `{"code":"conflict","title":"Not possible","detail":"This token was used already."}`
	_, err := p.enroll(dir)
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "This token was used already.") {
		t.Fatalf("%v", err)
	}
	if _, err := Load(dir); !fault.Is(err, fault.NotFound) {
		t.Errorf("identity after a refusal: %v", err)
	}
	p.problem = ""
	if _, err := p.enroll(dir); err != nil {
		t.Error(err)
	}
}

func TestEnrolmentGoesNowhereElse(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"http://muster.example", "ftp://muster.example", "muster.example",
		"https://u:p@muster.example", "https://muster.example/path", ""} {
		if _, err := Enroll(t.Context(), EnrollConfig{
			URL:      address,
			Token:    token,
			StateDir: t.TempDir(),
		}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", address, err)
		}
	}
	p := newPlatform(t)
	if _, err := Enroll(t.Context(), EnrollConfig{
		URL:      p.URL,
		Token:    token,
		StateDir: t.TempDir(),
	}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a platform with an untrusted certificate: %v", err)
	}
	elsewhere := httptest.NewTLSServer(http.RedirectHandler(p.URL+agentapi.EnrollPath, http.StatusTemporaryRedirect))
	t.Cleanup(elsewhere.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: elsewhere.Certificate().Raw})
	if _, err := Enroll(t.Context(), EnrollConfig{
		URL:      elsewhere.URL,
		Token:    token,
		CA:       ca,
		StateDir: t.TempDir(),
	}); err == nil || p.got.Token != "" {
		t.Errorf("the token followed a redirect: %v", err)
	}
}

func TestReadToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(" "+token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, stdin, want string }{{path, "", token}, {"-", token + "\n", token}, {"-", " \n", ""},
		{path + "x", "", ""}} {
		if got, err := ReadToken(c.path, strings.NewReader(c.stdin)); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %q %v", c, got, err)
		}
	}
}

// natsServer accepts every client with the link key, over TLS, with the permissions of a host.
func natsServer(t *testing.T, p *platform, host string, port int) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true,
		TLSConfig: &tls.Config{Certificates: p.TLS.Certificates, MinVersion: tls.VersionTLS12},
		Users:     []*server.User{{Username: "server", Password: "x"}},
		Nkeys: []*server.NkeyUser{{Nkey: p.got.LinkKey, Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{agentapi.SubjectSync(host), agentapi.SubjectInventory(host),
				agentapi.SubjectTelemetry(host)}},
			Subscribe: &server.SubjectPermission{Allow: []string{agentapi.SubjectWake(host), agentapi.SubjectDial(host),
				agentapi.InboxPrefix(host) + ".>"}},
		}}}})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("NATS does not start")
	}
	return s
}

func serverSide(t *testing.T, p *platform, s *server.Server) *nats.Conn {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(p.Certificate())
	nc, err := nats.Connect("tls://"+s.Addr().String(), nats.UserInfo("server", "x"),
		nats.Secure(&tls.Config{RootCAs: roots}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func TestTheConnectionComesBack(t *testing.T) {
	t.Parallel()
	p, dir := newPlatform(t), t.TempDir()
	if _, err := p.enroll(dir); err != nil {
		t.Fatal(err)
	}
	host := p.reply.Host
	s := natsServer(t, p, host, -1)
	i, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	i.NATS, i.NATSCA = []string{"tls://" + s.Addr().String()}, string(p.ca())
	up, wakes, dials := make(chan struct{}, 8), make(chan agentapi.Wake, 8), make(chan agentapi.Dial, 8)
	c := New(i, slog.New(slog.DiscardHandler))
	if _, err := c.Sync(t.Context(), agentapi.Sync{}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("before the start: %v", err)
	}
	if err := c.Start(Handlers{
		Wake: func(w agentapi.Wake) { wakes <- w },
		Dial: func(d agentapi.Dial) { dials <- d },
		Up:   func() { up <- struct{}{} },
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	wait(t, up)
	first := serverSide(t, p, s)
	talk(t, c, first, host, wakes, dials)
	first.Close() // it would come back and answer, too

	// The server goes and comes back at its place.
	port := s.Addr().(*net.TCPAddr).Port
	s.Shutdown()
	s.WaitForShutdown()
	if _, err := c.Sync(t.Context(), agentapi.Sync{}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("while down: %v", err)
	}
	s = natsServer(t, p, host, port)
	wait(t, up)
	talk(t, c, serverSide(t, p, s), host, wakes, dials)
}

// talk exercises every kind of message once.
func talk(t *testing.T, c *Conn, nc *nats.Conn, host string, wakes chan agentapi.Wake, dials chan agentapi.Dial) {
	t.Helper()
	var busy atomic.Bool
	answer := func(subject string, reply any) {
		_, err := nc.Subscribe(subject, func(m *nats.Msg) {
			if !strings.HasPrefix(m.Reply, agentapi.InboxPrefix(host)+".") {
				t.Errorf("reply subject %s", m.Reply)
			}
			if busy.Load() {
				reply = (&agentapi.TooMany{Wait: 1500 * time.Millisecond}).Ack()
			}
			b, _ := json.Marshal(reply)
			m.Respond(b)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	answer(agentapi.SubjectSync(host), agentapi.SyncReply{Revision: 7})
	answer(agentapi.SubjectInventory(host), agentapi.Ack{Error: "too old"})
	samples, err := nc.SubscribeSync(agentapi.SubjectTelemetry(host))
	if err != nil || nc.Flush() != nil {
		t.Fatal(err)
	}
	if r, err := c.Sync(t.Context(), agentapi.Sync{}); err != nil || r.Revision != 7 {
		t.Errorf("sync: %+v %v", r, err)
	}
	if err := c.Inventory(t.Context(), agentapi.Inventory{}); !fault.Is(err, fault.Unavailable) ||
		!strings.Contains(err.Error(), "too old") {
		t.Errorf("inventory: %v", err)
	}
	busy.Store(true)
	tooOften(t, c)
	if err := c.Telemetry(agentapi.Telemetry{}); err != nil {
		t.Error(err)
	}
	if _, err := samples.NextMsg(10 * time.Second); err != nil {
		t.Errorf("telemetry: %v", err)
	}
	nc.Publish(agentapi.SubjectWake(host), []byte(`{"revision":9}`))
	nc.Publish(agentapi.SubjectDial(host), []byte(`not json`))
	nc.Publish(agentapi.SubjectDial(host), []byte(`{"ticket":"t"}`))
	if w := wait(t, wakes); w.Revision != 9 {
		t.Errorf("wake %+v", w)
	}
	if d := wait(t, dials); d.Ticket != "t" {
		t.Errorf("dial %+v", d)
	}
}

// tooOften sends requests to a server that has received too many.
func tooOften(t *testing.T, c *Conn) {
	t.Helper()
	var much *agentapi.TooMany
	if _, err := c.Sync(t.Context(), agentapi.Sync{}); !errors.As(err, &much) || much.Wait != 1500*time.Millisecond {
		t.Errorf("a sync too many: %v", err)
	}
	much = nil
	if err := c.Inventory(t.Context(), agentapi.Inventory{}); !errors.As(err, &much) ||
		much.Wait != 1500*time.Millisecond {
		t.Errorf("an inventory too many: %v", err)
	}
}

func wait[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	select {
	case v := <-c:
		return v
	case <-ctx.Done():
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func TestDelayIsBoundedAndSpread(t *testing.T) {
	t.Parallel()
	for n := range 100 {
		if d := delay(n); d < time.Second || d > 9*time.Second {
			t.Errorf("attempt %d waits %v", n, d)
		}
	}
}
