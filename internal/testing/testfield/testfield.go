// Package testfield runs the platform as it is deployed, for tests and benchmarks: a server and a relay on an internet
// of their own, and hosts that are separate machines (internal/testing/testnet), each with an engine and an agent,
// behind routers of their own.
//
// Invariants:
//   - The programs are the real ones, in processes of their own; nothing of them runs in the caller.
//   - Nothing leads out of a field, and it ends with its test.
//
// It needs root, Docker's programs, and the PostgreSQL server that dbtest uses.
package testfield

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/devstack"
	"github.com/musterhq/muster/internal/devstack/demoimage"
	"github.com/musterhq/muster/internal/devstack/registry"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// Field is the platform and its hosts.
type Field struct {
	Net         *testnet.Net
	Internet    *testnet.Segment
	Cloud       *testnet.Host // the server's machine
	People      *testnet.Host // the machine of renters and operators
	Server      *Daemon
	Relay       *Daemon
	Operator    *client.Client // the account that owns the hosts
	URL         string         // address for people
	PostgresURL string         // address for this process
	Images      string         // the registry's address for this process, which pushes images there
	DemoImage   string         // the image's name for hosts
	Boxes       map[id.Host]*Box
	EngineJSON  string // daemon.json of boxes added later; "" means an empty one

	bin   string
	homes int
}

// These are the platform's names. Names is the /etc/hosts of every machine of the field.
const (
	cloudName, relayName = "cloud.muster.example", "relay.muster.example"
	Names                = "127.0.0.1 localhost\n203.0.113.2 " + cloudName + "\n2001:db8::2 " + cloudName +
		"\n203.0.113.5 " + relayName + "\n2001:db8::5 " + relayName + "\n"
	cloudAddr = "203.0.113.2"
	// AgentURL is where hosts enrol.
	AgentURL = "https://" + cloudName + ":8443"
)

// Patience is how long to wait for anything. It says nothing about speed: only a failure takes that long.
const Patience = 3 * time.Minute

// New starts the platform with the programs in bin, without hosts.
func New(t testing.TB, bin string) *Field {
	t.Helper()
	f := &Field{
		PostgresURL: dbtest.NewURL(t),
		URL:         "http://" + cloudAddr,
		Net:         testnet.New(t),
		Boxes:       map[id.Host]*Box{},
		bin:         bin,
	}
	f.Internet = f.Net.Segment()
	at := func(name string, last int) *testnet.Host {
		h := f.Net.Host(name)
		h.Join(f.Internet, fmt.Sprintf("203.0.113.%d/24", last), fmt.Sprintf("2001:db8::%d/64", last))
		knowsNames(t, h)
		return h
	}
	f.Cloud, f.People = at("cloud", 2), at("people", 3)
	carrier := at("relay", 5)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Story())
		}
	})
	secret := make([]byte, 32)
	rand.Read(secret)
	shared := "MUSTER_SECRET=" + base64.StdEncoding.EncodeToString(secret)
	f.Relay = &Daemon{
		host: carrier,
		argv: []string{filepath.Join(bin, "muster"), "server", "--role", "relay"},
		env:  []string{shared, "MUSTER_RELAY_LISTEN=:3478"},
	}
	f.Relay.Start(t)
	f.startImages(t)
	f.Server = &Daemon{
		host: f.Cloud,
		argv: []string{filepath.Join(bin, "muster"), "server"},
		env:  append(f.settings(t), shared),
	}
	f.Server.Start(t)
	f.AwaitServer(t)
	f.Operator, _ = f.SignUp(t, f.HTTP(t), "operator")
	return f
}

// settings returns the server's settings.
func (f *Field) settings(t testing.TB) []string {
	t.Helper()
	db, err := url.Parse(f.PostgresURL)
	if err != nil {
		t.Fatal(err)
	}
	f.Cloud.Publish("127.0.0.1:5432", db.Host)
	db.Host = "127.0.0.1:5432"
	certs, err := devstack.EnsureCertificates(f.ca(), cloudName)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"MUSTER_DATABASE_URL=" + db.String(), "MUSTER_DB_CONNS=12", "MUSTER_LISTEN=" + cloudAddr + ":80",
		"MUSTER_PUBLIC_URL=" + f.URL,
		"MUSTER_AGENT_LISTEN=:8443", "MUSTER_AGENT_URL=" + AgentURL, "MUSTER_NATS_LISTEN=:4222",
		"MUSTER_NATS_PUBLIC_URL=tls://" + cloudName + ":4222",
		"MUSTER_TLS_CERT=" + certs.Cert, "MUSTER_TLS_KEY=" + certs.Key, "MUSTER_TLS_CA=" + certs.CA,
		"MUSTER_GATEWAY_LISTEN=" + cloudAddr + ":2222",
		"MUSTER_RELAYS=" + relayName + ":3478", "MUSTER_ALLOW_SIMULATED=true", "MUSTER_SIGNUPS_PER_HOUR=1000",
		"MUSTER_REPLICA=cloud"}
}

// CA returns the PEM file of the platform's own certificate authority.
func (f *Field) CA() string { return filepath.Join(f.ca(), "ca.pem") }

// ca returns the folder of the platform's own certificate authority.
func (f *Field) ca() string { return filepath.Join(f.Net.Dir(), "tls") }

// startImages serves the demo's image on the cloud's machine.
func (f *Field) startImages(t testing.TB) {
	t.Helper()
	r, err := registry.Start(t.Context(), registry.Config{
		Dir:    filepath.Join(f.Net.Dir(), "registry"),
		Listen: "127.0.0.1:0",
		Log:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	f.Images = r.Addr()
	for _, at := range []string{cloudAddr + ":5000", "[2001:db8::2]:5000"} {
		f.Cloud.Publish(at, f.Images)
	}
	ref, _, err := demoimage.Push(t.Context(), f.Images, filepath.Join(f.bin, "muster-demo-job"))
	if err != nil {
		t.Fatal(err)
	}
	f.DemoImage = f.Pulled(ref)
}

// Pulled returns an image's name for the hosts.
func (f *Field) Pulled(ref string) string {
	return cloudName + ":5000" + strings.TrimPrefix(ref, f.Images)
}

// knowsNames gives a machine the platform's names, in place of a name server.
func knowsNames(t testing.TB, h *testnet.Host) {
	t.Helper()
	file := filepath.Join(h.Dir(), "hosts")
	if err := os.WriteFile(file, []byte(Names), 0o644); err != nil {
		t.Fatal(err)
	}
	h.Run("mount", "--bind", file, "/etc/hosts")
}

// AwaitServer returns when the server is ready.
func (f *Field) AwaitServer(t testing.TB) {
	t.Helper()
	c := f.HTTP(t)
	await(t, "the server is ready", func() bool {
		resp, err := c.Get(f.URL + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// HTTP returns a client on the people's machine.
func (f *Field) HTTP(t testing.TB) *http.Client {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DialContext: f.People.Dial, MaxIdleConnsPerHost: 16}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// SignUp creates a user with an organisation of their own, and returns a client for them.
func (f *Field) SignUp(t testing.TB, through *http.Client, name string) (c *client.Client, token string) {
	t.Helper()
	anonymous, err := client.New(f.URL, "", client.WithHTTP(through))
	if err != nil {
		t.Fatal(err)
	}
	who, err := anonymous.Account.SignUp(t.Context(), client.SignUpRequest{Email: uuid.NewString() + "@muster.example",
		Password: "a password for " + uuid.NewString(), Name: name})
	if err == nil {
		c, err = client.New(f.URL, who.Token, client.WithHTTP(through))
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, who.Token
}

// Home adds a network behind a router of its own. All homes have the same addresses inside, as real homes do.
func (f *Field) Home(kind testnet.NAT) *testnet.Segment {
	s := f.Net.Segment()
	f.homes++
	f.Net.Router(fmt.Sprintf("router%d", f.homes), s, "192.168.1.1/24", f.Internet,
		fmt.Sprintf("203.0.113.%d/24", 100+f.homes), kind)
	return s
}

// Story returns the ends of all programs' logs, for the report of a failure.
func (f *Field) Story() string {
	var s strings.Builder
	for _, d := range f.daemons() {
		fmt.Fprintf(&s, "--- %s\n%s\n", d.log(), tail(d.log(), 40))
	}
	return s.String()
}

func (f *Field) daemons() (out []*Daemon) {
	for _, d := range []*Daemon{f.Server, f.Relay} {
		if d != nil {
			out = append(out, d)
		}
	}
	for _, b := range f.Boxes {
		out = append(out, b.Agent)
	}
	slices.SortFunc(out, func(a, b *Daemon) int { return strings.Compare(a.log(), b.log()) })
	return out
}

// tail returns the end of a file.
func tail(path string, n int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// await polls until ok returns true, and fails the test with what if that takes longer than Patience.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", Patience, what)
		}
	}
}
