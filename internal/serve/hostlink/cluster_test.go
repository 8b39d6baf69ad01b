package hostlink_test

import (
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/serve/hostlink"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// natsCluster starts n NATS servers that form one cluster with the configuration that the platform prints.
func natsCluster(t *testing.T, n int) (servers []*server.Server) {
	t.Helper()
	conf, err := hostlink.NATSConfig(secret)
	if err != nil {
		t.Fatal(err)
	}
	first := testnet.Address(t)
	for i := range n {
		o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true}
		if err := o.ProcessConfigString(conf); err != nil {
			t.Fatal(err)
		}
		o.Cluster.Name = "external"
		o.Cluster.Host, o.Cluster.Port = "127.0.0.1", server.RANDOM_PORT
		if i == 0 {
			_, port, _ := net.SplitHostPort(first)
			o.Cluster.Port, _ = strconv.Atoi(port)
		} else {
			o.Routes = []*url.URL{{Scheme: "nats-route", Host: first}}
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
		servers = append(servers, ns)
	}
	eventually(t, "the servers know each other", func() bool {
		for _, s := range servers {
			if s.NumRoutes() < n-1 {
				return false
			}
		}
		return true
	})
	return servers
}

// A host is connected to a server of an external NATS cluster to which no replica is connected. It works as any other,
// and when that server dies, its silence is not its fault and its connection ends.
func TestAHostOnANATSServerWithoutAReplica(t *testing.T) {
	t.Parallel()
	servers := natsCluster(t, 3)
	d := dbtest.New(t)
	s := &site{t: t, d: d}
	s.org, s.user = fleettest.Org(t, d)
	at := func(i int) hostlink.Config {
		c := config()
		c.Listen, c.WebSocketListen, c.NATSURL = "", "", servers[i].ClientURL()
		c.AgentURLs, c.Log = []string{servers[2].ClientURL()}, slog.New(slog.DiscardHandler)
		return c
	}
	s.link, s.w = start(t, d, at(0))
	other, _ := start(t, d, at(1))

	a := &agent{Agent: fleettest.Enroll(t, d, s.org, s.user, 2), t: t, instance: uuid.NewString()}
	eventually(t, "the host connects", func() bool { return a.connect(s.link) == nil })
	if r := a.sync(agentapi.Sync{Seq: 1}); r.StatusAck != 1 {
		t.Fatalf("%+v", r)
	}
	for _, l := range []*hostlink.Link{s.link, other} {
		l.Bus().Wake(a.Host, 7)
		within(t, "a wake", a.wakes)
	}

	count := func(query string, args ...any) (n int) {
		t.Helper()
		if err := d.Pool.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	dead := servers[2].ID()
	eventually(t, "the server without a replica has a pulse", func() bool {
		return count("SELECT count(*) FROM pulse WHERE listener = $1", dead) == 1
	})
	servers[2].Shutdown()
	within(t, "the connection is closed", a.closed)
	// Time passes.
	if _, err := d.Pool.Exec(t.Context(), `WITH p AS (UPDATE pulse SET first_ms = first_ms - 300000, last_ms = last_ms - 300000
		WHERE listener = $1) UPDATE host_status SET last_sync_at = last_sync_at - interval '5 minutes',
		connected_at = connected_at - interval '5 minutes'`, dead); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the time without that server is recorded", func() bool {
		return count("SELECT count(*) FROM deaf_gap WHERE listener = $1", dead) == 1
	})
	eventually(t, "the host counts as disconnected", func() bool { return !s.host(a).Status.Connected })
}
