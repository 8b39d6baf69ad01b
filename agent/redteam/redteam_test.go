package redteam

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/leasefiles"
	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// box is a host in a home network, with everything around it.
type box struct {
	t           *testing.T
	net         *testnet.Net
	host        *testnet.Host
	far         *testnet.Host // the internet
	docker      *testnet.Docker
	engine      *container.Engine
	id          id.Host
	image       string
	leases      map[netip.Addr]firewall.Egress
	connections atomic.Int64 // connections that reached any of the places around the box, or the box itself
}

// The places around the box. All answer every client that reaches them.
const (
	boxLAN    = "192.168.7.10"
	neighbour = "192.168.7.20:80"
	public    = "203.0.113.80:80"
	mail      = "203.0.113.80:25"
	other     = "203.0.113.80:9999"
)

var metadata = []string{"169.254.169.254:80", "168.63.129.16:80", "100.100.100.200:80", "192.0.0.192:80"}

func newBox(t *testing.T) *box { return newBoxOn(t, (*testnet.Host).Docker) }

func newBoxOn(t *testing.T, engine func(*testnet.Host) *testnet.Docker) *box {
	t.Helper()
	n := testnet.New(t)
	b := &box{t: t, net: n, id: id.New[id.Host](), leases: map[netip.Addr]firewall.Egress{}}
	lan, internet := n.Segment(), n.Segment()
	router := n.Router("router", lan, "192.168.7.1/24", internet, "203.0.113.7/24", testnet.Preserving)
	answer := func(h *testnet.Host, addresses ...string) {
		for _, a := range addresses {
			l := h.Listen(a)
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					b.connections.Add(1)
					c.Close()
				}
			}()
		}
	}
	b.far = n.Host("internet")
	b.far.Join(internet, "203.0.113.80/24", "169.254.169.254/32", "168.63.129.16/32", "100.100.100.200/32",
		"192.0.0.192/32")
	for _, m := range metadata {
		router.Route(strings.TrimSuffix(m, ":80"), "203.0.113.80")
	}
	answer(b.far, append([]string{public, mail, other}, metadata...)...)
	next := n.Host("neighbour")
	next.Join(lan, "192.168.7.20/24")
	answer(next, neighbour)

	b.host = n.Host("box")
	b.host.Join(lan, boxLAN+"/24")
	b.host.Route("default", "192.168.7.1")
	answer(b.host, "0.0.0.0:2222") // a service of the host's own, at all its addresses
	b.docker = engine(b.host)
	return b
}

// there waits until a place answers the host, which may reach it: its machine may be just starting.
func (b *box) there(t *testing.T, addr string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		c, err := b.host.Dial(t.Context(), "tcp", addr)
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not there to be attacked: %v", addr, err)
		}
	}
}

// build makes the injected binary and the hostile image.
func (b *box) build() {
	b.t.Helper()
	programs := map[string]string{"guest": "../../cmd/muster-guest", "hostile": "./testdata/hostile"}
	for name, source := range programs {
		cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", filepath.Join(b.net.Dir(), name), source)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.t.Fatalf("build %s: %v\n%s", name, err, out)
		}
	}
	root := filepath.Join(b.net.Dir(), "root")
	for _, d := range []string{"tmp", "etc", "proc", "sys", "dev"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
	tar := filepath.Join(b.net.Dir(), "image.tar")
	for _, cmd := range []*exec.Cmd{
		exec.Command("cp", filepath.Join(b.net.Dir(), "hostile"), filepath.Join(root, "hostile")),
		exec.Command("tar", "-C", root, "-cf", tar, "."),
	} {
		if out, err := cmd.CombinedOutput(); err != nil {
			b.t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	b.image = b.docker.Do("import", tar, "hostile")
	var err error
	cfg := container.Config{Docker: b.docker.Socket, Host: b.id, GuestBinary: filepath.Join(b.net.Dir(), "guest"),
		Simulated: true, Overlay: netip.MustParsePrefix(overlayRange), Log: slog.New(slog.DiscardHandler)}
	if b.engine, err = container.New(cfg); err != nil {
		b.t.Fatal(err)
	}
	cfg.DiskLimited = b.engine.Facts(b.t.Context()).DiskLimited // as the agent finds out
	b.engine.Close()
	if b.engine, err = container.New(cfg); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { b.engine.Close() })
}

// node is a lease that runs the hostile image.
type node struct {
	box   *box
	dir   string // the lease's, on the host
	guest container.Container
	work  container.Container
}

// run starts a lease as the agent does: firewall, guest, workload to its barrier, release.
func (b *box) run(egress firewall.Egress, ramMB int64, command ...string) *node {
	b.t.Helper()
	ctx := context.Background()
	spec := agentapi.LeaseSpec{
		LeaseRef: agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1},
		Nodes:    1,
		CPUs:     1,
		RAMMB:    ramMB,
		DiskGB:   1,
		Command:  append([]string{"/hostile"}, command...),
		Network:  agentapi.Network{Address: "10.77.0.1", CIDR: overlayRange},
	}
	dir := filepath.Join(b.host.Dir(), spec.Lease)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		b.t.Fatal(err)
	}
	files := leasefiles.At(dir)
	if err := files.Write(spec, []netip.Addr{netip.MustParseAddr("203.0.113.80")}); err != nil {
		b.t.Fatal(err)
	}
	n := &node{box: b, dir: dir}
	err := b.host.Inside(func() (err error) {
		if err = new(firewall.Keeper).Ensure(ctx, b.firewall()); err != nil {
			return err
		}
		if n.guest, err = b.engine.EnsureGuest(ctx, spec, files); err != nil {
			return err
		}
		b.leases[n.guest.IP] = egress
		if err = new(firewall.Keeper).Ensure(ctx, b.firewall()); err != nil {
			return err
		}
		n.work, err = b.engine.EnsureWorkload(ctx, container.WorkloadSpec{
			Lease:   spec,
			Guest:   n.guest.ID,
			ImageID: b.image,
			Files:   files,
		})
		return err
	})
	if err == nil {
		err = files.OpenBarrier(spec.LeaseRef)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *box) firewall() firewall.Config {
	return firewall.Config{Host8: container.Host8(b.id), Leases: b.leases}
}

// held waits for the attacks to end and checks that every one was held, and that there were as many as meant.
func (n *node) held(t *testing.T, least int) {
	t.Helper()
	code := n.box.docker.Do("wait", n.work.ID)
	log := n.box.docker.Do("logs", n.work.ID)
	held := strings.Count("\n"+log, "\nheld ")
	if code != "0" || strings.Contains(log, "BREACH") || !strings.Contains(log, "finished") || held < least {
		t.Errorf("exit %s, %d attacks held of at least %d:\n%s", code, held, least, log)
	}
	t.Logf("%d attacks held:\n%s", held, log)
}

// Hostile images run on one host, each with a neighbour: none gets out.
func TestHostileImagesAreHeld(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.build()
	victim := b.run(firewall.EgressFull, 64, "serve")
	gateway := netip.AddrFrom4([4]byte{victim.guest.IP.As4()[0], victim.guest.IP.As4()[1], victim.guest.IP.As4()[2], 1})
	targets := []string{
		"the host by the bridge=" + gateway.String() + ":2222", "the host by its LAN=" + boxLAN + ":2222",
		"the LAN's router=192.168.7.1:80",
		"a neighbour in the LAN=" + neighbour, "another cluster=" + victim.guest.IP.String() + ":9000",
	}
	for i, m := range metadata {
		targets = append(targets, fmt.Sprintf("metadata %d=%s", i, m))
	}
	// The targets are there: from the host itself each answers.
	for _, target := range append([]string{"x=" + public, "x=" + mail}, targets...) {
		_, addr, _ := strings.Cut(target, "=")
		if addr != "192.168.7.1:80" {
			b.there(t, addr)
		}
	}
	full := append([]string{"reach", "+public=" + public, "+other=" + other, "mail=" + mail}, targets...)
	limited := append([]string{"reach", "+public=" + public, "other=" + other, "mail=" + mail}, targets...)
	off := append([]string{"reach", "public=" + public, "other=" + other, "mail=" + mail}, targets...)
	for _, tc := range []struct {
		name    string
		egress  firewall.Egress
		ramMB   int64
		command []string
		least   int
	}{
		{"network, egress full", firewall.EgressFull, 64, full, 12},
		{"network, egress limited", firewall.EgressLimited, 64, limited, 12},
		{"network, egress off", firewall.EgressOff, 64, off, 12},
		{"machine", firewall.EgressOff, 64, []string{"machine"}, 43},
		{"fork bomb", firewall.EgressOff, 512, []string{"forks"}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) { b.run(tc.egress, tc.ramMB, tc.command...).held(t, tc.least) })
	}
	t.Run("memory hog", func(t *testing.T) {
		n := b.run(firewall.EgressOff, 128, "memory")
		if code := b.docker.Do("wait", n.work.ID); code != "137" {
			t.Errorf("it ended with %s:\n%s", code, b.docker.Do("logs", n.work.ID))
		}
	})
	t.Run("neighbour cluster", b.neighbourCluster)
	// The neighbour, the host and its engine live on.
	if state := b.docker.Do("inspect", "-f", "{{.State.Running}}", victim.work.ID); state != "true" {
		t.Errorf("the neighbour runs: %s", state)
	}
	if log := b.docker.Do("logs", victim.work.ID); !strings.Contains(log, "serving") {
		t.Errorf("the neighbour says: %s", log)
	}
	if facts := b.engine.Facts(t.Context()); facts.DiskLimited {
		t.Error("a host that cannot hold a disk filler is listed as one that limits disks")
	}
}
