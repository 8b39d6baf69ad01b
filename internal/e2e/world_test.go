package e2e

import (
	"context"
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

	"github.com/musterhq/muster/agent/gpu/fakeprofile"
	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/dbtest"
	"github.com/musterhq/muster/internal/devstack"
	"github.com/musterhq/muster/internal/devstack/demoimage"
	"github.com/musterhq/muster/internal/devstack/registry"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testnet"
)

// world is the platform as it is in the field: a server and a relay on an internet of the test's own, and hosts that are
// machines of their own, with an engine and an agent each, behind routers of their own. Nothing leads out of it.
type world struct {
	*platform // its database, the demo's image, the renters' address
	net       *testnet.Net
	internet  *testnet.Segment
	cloud     *testnet.Host // the server's machine
	people    *testnet.Host // where renters and operators call from
	server    *daemon
	relay     *daemon
	operator  *client.Client
	images    string // where images are pushed to: the registry as this process reaches it
	boxes     map[id.Host]*box
	homes     int
}

// The platform's names, which every machine of the world knows.
const (
	cloudName, relayName = "cloud.muster.example", "relay.muster.example"
	worldHosts           = "127.0.0.1 localhost\n203.0.113.2 " + cloudName + "\n2001:db8::2 " + cloudName + "\n203.0.113.5 " + relayName + "\n2001:db8::5 " + relayName + "\n"
	worldAddr            = "203.0.113.2"
)

// newWorld brings up the platform, without hosts.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{platform: &platform{Info: devstack.Info{PostgresURL: dbtest.NewURL(t), URL: "http://" + worldAddr}}, net: testnet.New(t), boxes: map[id.Host]*box{}}
	w.internet = w.net.Segment()
	at := func(name string, last int) *testnet.Host {
		h := w.net.Host(name)
		h.Join(w.internet, fmt.Sprintf("203.0.113.%d/24", last), fmt.Sprintf("2001:db8::%d/64", last))
		w.knowsNames(t, h)
		return h
	}
	w.cloud, w.people = at("cloud", 2), at("people", 3)
	carrier := at("relay", 5)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.story())
		}
	})
	secret := make([]byte, 32)
	rand.Read(secret)
	shared := "MUSTER_SECRET=" + base64.StdEncoding.EncodeToString(secret)
	w.relay = &daemon{host: carrier, argv: []string{filepath.Join(bin, "muster"), "server", "--role", "relay"}, env: []string{shared, "MUSTER_RELAY_LISTEN=:3478"}}
	w.relay.start(t)
	w.startImages(t)
	w.server = &daemon{host: w.cloud, argv: []string{filepath.Join(bin, "muster"), "server"}, env: append(w.settings(t), shared)}
	w.server.start(t)
	w.awaitServer(t)
	w.operator = w.signUp(t, "operator").Client
	return w
}

// settings are the server's.
func (w *world) settings(t *testing.T) []string {
	t.Helper()
	db, err := url.Parse(w.PostgresURL)
	if err != nil {
		t.Fatal(err)
	}
	w.cloud.Publish("127.0.0.1:5432", db.Host)
	db.Host = "127.0.0.1:5432"
	certs, err := devstack.EnsureCertificates(w.ca(), cloudName)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"MUSTER_DATABASE_URL=" + db.String(), "MUSTER_DB_CONNS=12", "MUSTER_LISTEN=" + worldAddr + ":80", "MUSTER_PUBLIC_URL=" + w.URL,
		"MUSTER_AGENT_LISTEN=:8443", "MUSTER_AGENT_URL=https://" + cloudName + ":8443", "MUSTER_NATS_LISTEN=:4222", "MUSTER_NATS_PUBLIC_URL=tls://" + cloudName + ":4222",
		"MUSTER_TLS_CERT=" + certs.Cert, "MUSTER_TLS_KEY=" + certs.Key, "MUSTER_TLS_CA=" + certs.CA, "MUSTER_GATEWAY_LISTEN=" + worldAddr + ":2222",
		"MUSTER_RELAYS=" + relayName + ":3478", "MUSTER_ALLOW_SIMULATED=true", "MUSTER_SIGNUPS_PER_HOUR=1000", "MUSTER_REPLICA=cloud"}
}

func (w *world) ca() string { return filepath.Join(w.net.Dir(), "tls") }

// startImages serves the demo's image at the cloud.
func (w *world) startImages(t *testing.T) {
	t.Helper()
	r, err := registry.Start(t.Context(), registry.Config{Dir: filepath.Join(w.net.Dir(), "registry"), Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	w.images = r.Addr()
	for _, at := range []string{worldAddr + ":5000", "[2001:db8::2]:5000"} {
		w.cloud.Publish(at, w.images)
	}
	ref, _, err := demoimage.Push(t.Context(), w.images, filepath.Join(bin, "muster-demo-job"))
	if err != nil {
		t.Fatal(err)
	}
	w.DemoImage = w.pulled(ref)
}

// pulled is an image's name for the hosts.
func (w *world) pulled(ref string) string {
	return cloudName + ":5000" + strings.TrimPrefix(ref, w.images)
}

// knowsNames gives a machine the platform's names, in place of a name server.
func (w *world) knowsNames(t *testing.T, h *testnet.Host) {
	t.Helper()
	file := filepath.Join(h.Dir(), "hosts")
	if err := os.WriteFile(file, []byte(worldHosts), 0o644); err != nil {
		t.Fatal(err)
	}
	h.Run("mount", "--bind", file, "/etc/hosts")
}

func (w *world) awaitServer(t *testing.T) {
	t.Helper()
	c := w.http(t)
	eventually(t, "the server is ready", func() bool {
		resp, err := c.Get(w.URL + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// http is a client on the people's machine.
func (w *world) http(t *testing.T) *http.Client {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DialContext: w.people.Dial, MaxIdleConnsPerHost: 16}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func (w *world) signUp(t *testing.T, name string) *renter {
	t.Helper()
	r := &renter{p: w.platform, http: w.http(t)}
	anonymous, err := client.New(w.URL, "", client.WithHTTP(r.http))
	if err != nil {
		t.Fatal(err)
	}
	who, err := anonymous.SignUp(t.Context(), uuid.NewString()+"@muster.example", "a password for "+uuid.NewString(), name)
	if err != nil {
		t.Fatal(err)
	}
	r.token = who.Token
	r.connect(t)
	return r
}

// renter signs somebody up who has paid in so much.
func (w *world) renter(t *testing.T, funds money.Nano) *renter {
	t.Helper()
	r := w.signUp(t, t.Name())
	r.topUp(t, funds)
	return r
}

// home is a network behind a router of its own. All homes have the same addresses inside, as homes do.
func (w *world) home(kind testnet.NAT) *testnet.Segment {
	s := w.net.Segment()
	w.homes++
	w.net.Router(fmt.Sprintf("router%d", w.homes), s, "192.168.1.1/24", w.internet, fmt.Sprintf("203.0.113.%d/24", 100+w.homes), kind)
	return s
}

// box is a host: a machine with an engine, and an agent that is enrolled.
type box struct {
	*testnet.Host
	w      *world
	id     id.Host
	link   *testnet.Link
	docker *testnet.Docker
	agent  *daemon
}

// box adds a host with one GPU to a network, and returns when it is for rent at a price per hour.
func (w *world) box(t *testing.T, name string, s *testnet.Segment, gateway, price string, addresses ...string) *box {
	t.Helper()
	b := &box{Host: w.net.Host(name), w: w}
	b.link = b.Join(s, addresses...)
	if gateway != "" {
		b.Route("default", gateway)
	}
	w.knowsNames(t, b.Host)
	b.docker = b.Docker()
	profile := filepath.Join(b.Dir(), "gpus.profile")
	gpus, err := fakeprofile.Host("NVIDIA H100 80GB HBM3", 1, w.net.Dir()+name)
	if err == nil {
		err = gpus.Save(profile)
	}
	if err != nil {
		t.Fatal(err)
	}
	env := []string{fakeprofile.Env + "=" + profile, "MUSTER_NVML_LIBRARY=" + filepath.Join(bin, "fakenvml", "libnvidia-ml.so.1")}
	agent, state := filepath.Join(bin, "muster-agent"), filepath.Join(b.Dir(), "state")
	token, err := w.operator.Enroll(t.Context(), name, "home", "")
	if err != nil {
		t.Fatal(err)
	}
	enroll := b.Command(t.Context(), agent, "enroll", "--state", state, "--docker", b.docker.Socket, "--url", "https://"+cloudName+":8443", "--ca", filepath.Join(w.ca(), "ca.pem"))
	enroll.Env, enroll.Stdin = append(os.Environ(), env...), strings.NewReader(token.Token)
	if out, err := enroll.CombinedOutput(); err != nil {
		t.Fatalf("%s: enrol: %v\n%s", name, err, out)
	}
	var who struct{ Host id.Host }
	if err := readJSON(filepath.Join(state, "identity.json"), &who); err != nil {
		t.Fatal(err)
	}
	b.id, w.boxes[who.Host] = who.Host, b
	b.agent = &daemon{host: b.Host, env: env, argv: []string{agent, "run", "--state", state, "--docker", b.docker.Socket,
		"--guest", filepath.Join(bin, "muster-guest"), "--allow-registry", cloudName + ":5000"}}
	b.agent.start(t)
	micro, err := money.ParseMicro(price)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.operator.ChangeHost(t.Context(), b.id, client.HostChange{Price: &micro}); err != nil {
		t.Fatal(err)
	}
	b.awaitSelling(t)
	return b
}

// awaitSelling waits until the host is for rent.
func (b *box) awaitSelling(t *testing.T) {
	t.Helper()
	var last client.Host
	defer func() {
		if t.Failed() {
			t.Logf("%s: %+v", b.Name, last)
		}
	}()
	eventually(t, b.Name+" is for rent", func() bool {
		h, err := b.w.operator.Host(t.Context(), b.id)
		last = h
		return err == nil && h.Selling && h.Reachable
	})
}

// job is a training over so many nodes that lasts at least so long.
func (w *world) job(nodes int, atLeast time.Duration) client.Spec {
	s := w.training(atLeast)
	s.Nodes = nodes
	return s
}

// idle checks that nothing of any lease is left, in the books or on a machine that is not cut off.
func (w *world) idle(t *testing.T) {
	t.Helper()
	eventually(t, "no GPU is taken", func() bool { return w.sql(t, "SELECT count(*) FROM gpu_claim WHERE ended_at IS NULL") == 0 })
	for _, b := range w.boxes {
		eventually(t, "nothing is left on "+b.Name, func() bool { return len(b.left(t)) == 0 })
	}
}

// left is what the host still has of leases.
func (b *box) left(t *testing.T) []string {
	t.Helper()
	out := strings.Fields(b.docker.Do("ps", "--all", "--quiet", "--filter", "label=muster.host="+b.id.String()))
	for _, pid := range b.Processes("muster-agent overlay ") {
		out = append(out, fmt.Sprintf("overlay %d", pid))
	}
	return out
}

// at is the host of a rank.
func (w *world) at(t *testing.T, c client.Cluster, rank int) *box {
	t.Helper()
	b := w.boxes[c.Nodes[rank].HostID]
	if b == nil {
		t.Fatalf("rank %d is on no host of this world: %+v", rank, c.Nodes[rank])
	}
	return b
}

// story is what happened, for whoever reads a failure.
func (w *world) story() string {
	var s strings.Builder
	for _, d := range w.daemons() {
		fmt.Fprintf(&s, "--- %s\n%s\n", d.log(), tail(d.log(), 40))
	}
	return s.String()
}

func (w *world) daemons() (out []*daemon) {
	for _, d := range []*daemon{w.server, w.relay} {
		if d != nil {
			out = append(out, d)
		}
	}
	for _, b := range w.boxes {
		out = append(out, b.agent)
	}
	slices.SortFunc(out, func(a, b *daemon) int { return strings.Compare(a.log(), b.log()) })
	return out
}

// daemon is a program of a machine that can be killed and started again.
type daemon struct {
	host *testnet.Host
	argv []string
	env  []string
}

func (d *daemon) log() string { return filepath.Join(d.host.Dir(), filepath.Base(d.argv[0])+".log") }

func (d *daemon) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(d.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := d.host.Command(context.Background(), d.argv[0], d.argv[1:]...)
	cmd.Env = append(os.Environ(), d.env...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go cmd.Wait() // it ends with its machine at the latest
}
