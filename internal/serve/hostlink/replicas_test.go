package hostlink_test

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/serve/hostlink"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// twoReplicas is a site with a second replica: a host connected to the first is reached from the second, is known to
// it as connected, and is kicked by it.
func twoReplicas(t *testing.T, first, second hostlink.Config) {
	t.Helper()
	s := &site{t: t, d: dbtest.New(t)}
	s.org, s.user = fleettest.Org(t, s.d)
	s.link, s.w = start(t, s.d, first)
	other, _ := start(t, s.d, second)
	ready := func(l *hostlink.Link) bool { return len(l.Unready(t.Context())) == 0 }
	eventually(t, "both replicas are ready", func() bool { return ready(s.link) && ready(other) })

	a := s.enroll()
	raise := func() {
		if err := s.d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return fleettest.RaiseRevision(ctx, tx, other.Bus(), a.Host)
		}); err != nil {
			t.Fatal(err)
		}
	}
	// Routes between servers come up by themselves.
	eventually(t, "a wake from the other replica", func() bool {
		raise()
		select {
		case <-a.wakes:
			return true
		case <-time.After(50 * time.Millisecond):
			return false
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes := s.link.Bus().Watch(ctx, bus.TopicHost(a.Host))
	eventually(t, "a change seen by the other replica", func() bool {
		other.Bus().Changed(bus.TopicHost(a.Host))
		select {
		case <-changes:
			return true
		case <-time.After(50 * time.Millisecond):
			return false
		}
	})
	clone := &agent{Agent: a.Agent, t: t, instance: uuid.NewString()}
	if err := clone.connect(other); err == nil {
		t.Error("one key is connected to two replicas")
	}
	if _, _, err := host.New(s.d, other.Bus()).Act(t.Context(), account.Principal{Org: s.org}, a.Host,
		host.Action{Name: host.Retire}, idem.Request{}); err != nil {
		t.Fatal(err)
	}
	within(t, "the connection is closed", a.closed)
}

func TestReplicasWithRoutes(t *testing.T) {
	t.Parallel()
	cfg := func() hostlink.Config {
		c := config()
		c.RouteListen = testnet.Address(t)
		c.RouteURL = "nats-route://" + c.RouteListen
		return c
	}
	twoReplicas(t, cfg(), cfg())
}

// freePort returns a TCP port of the loopback that nothing listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// The replicas start before NATS does, and wait for it.
func TestReplicasWithAnExternalNATS(t *testing.T) {
	t.Parallel()
	conf, err := hostlink.NATSConfig(secret)
	if err != nil {
		t.Fatal(err)
	}
	if seed := regexp.MustCompile(`\bS[A-Z2-7]{57}\b`).FindString(conf); seed != "" ||
		strings.Contains(conf, string(secret)) {
		t.Errorf("what goes to another machine holds a secret: %s", conf)
	}
	o := &server.Options{Host: "127.0.0.1", Port: freePort(t), NoSigs: true}
	if err := o.ProcessConfigString(conf); err != nil {
		t.Fatal(err)
	}
	ns, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Second, ns.Start)
	t.Cleanup(func() { late.Stop(); ns.Shutdown() })
	c, url := config(), fmt.Sprintf("nats://127.0.0.1:%d", o.Port)
	c.Listen, c.WebSocketListen, c.NATSURL, c.AgentURLs = "", "", url, []string{url}
	twoReplicas(t, c, c)
}

func TestNATSReady_WithoutNATS(t *testing.T) {
	t.Parallel()
	conf, err := hostlink.NATSConfig(secret)
	if err != nil {
		t.Fatal(err)
	}
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true}
	if err := o.ProcessConfigString(conf); err != nil {
		t.Fatal(err)
	}
	ns, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(ns.Shutdown)
	if !ns.ReadyForConnections(patience) {
		t.Fatal("NATS did not start")
	}
	c := config()
	c.Listen, c.WebSocketListen, c.NATSURL, c.AgentURLs = "", "", ns.ClientURL(), []string{ns.ClientURL()}
	l, _ := start(t, dbtest.New(t), c)
	if err := l.NATSReady(t.Context()); err != nil {
		t.Errorf("with NATS: %v", err)
	}
	ns.Shutdown()
	eventually(t, "every connection to NATS is down", func() bool {
		err := l.NATSReady(t.Context())
		return err != nil && err.Error() == "no connection to NATS for: hosts, replicas, authentication"
	})
}

func TestUnreadyWithSeveralReplicasThatCannotBeReached(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	cfg := config()
	cfg.StreamURL, cfg.RouteListen = "", ""
	one, _ := start(t, d, cfg)
	if why := one.Unready(t.Context()); len(why) != 0 {
		t.Errorf("alone and unready: %v", why)
	}
	two, err := hostlink.Open(t.Context(), host.NewReplicas(d), cfg)
	if err != nil {
		t.Fatal(err)
	}
	why := strings.Join(one.Unready(t.Context()), "\n")
	if !strings.Contains(why, "--advertise-stream-url") || !strings.Contains(why, "--nats-routes") {
		t.Errorf("unready because %q", why)
	}
	if err := two.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if why := one.Unready(t.Context()); len(why) != 0 {
		t.Errorf("the other replica left, yet %v", why)
	}
}

func TestStopEndsSessions(t *testing.T) {
	t.Parallel()
	s := &site{t: t, d: dbtest.New(t)}
	s.org, s.user = fleettest.Org(t, s.d)
	l, err := hostlink.Open(t.Context(), host.NewReplicas(s.d), config())
	if err != nil {
		t.Fatal(err)
	}
	s.link, s.w = l, letIn(t, s.d, l)
	a := s.enroll()
	if r := a.sync(agentapi.Sync{Seq: 1}); r.StatusAck != 1 {
		t.Fatalf("%+v", r)
	}
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	within(t, "the connection is closed", a.closed)
	if s.host(a).Status.Connected {
		t.Error("the host still counts as connected")
	}
}
