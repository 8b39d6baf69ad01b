//go:build long

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/devstack"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
	"github.com/musterhq/muster/internal/testing/fleettest/markettest"
)

// estate is the second stage of docs/growing.md on one machine: three replicas, an external NATS cluster of three, each
// a process, on one database.
type estate struct {
	t        *testing.T
	dir      string
	certs    devstack.Certificates
	database string
	d        *db.DB
	hosts    []string // where hosts reach NATS
	nats     []*process
	replicas []*replica
}

// process is a program that was started, and is killed at the end of the test at the latest.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// run starts a program whose output goes to a file that is shown if the test fails.
func (e *estate) run(name string, cmd *exec.Cmd) *process {
	e.t.Helper()
	log := filepath.Join(e.dir, name+".log")
	out, err := os.Create(log)
	if err != nil {
		e.t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &process{cmd, make(chan struct{})}
	if err := startChild(cmd, func(error) { close(p.ended) }); err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		if e.t.Failed() {
			e.t.Logf("--- %s\n%s", log, tail(log, 30))
		}
		p.kill()
	})
	return p
}

const estateSecret = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// newEstate starts everything and waits until each replica is ready.
func newEstate(t *testing.T) *estate {
	t.Helper()
	e := &estate{t: t, dir: t.TempDir(), database: dbtest.NewURL(t)}
	var err error
	if e.certs, err = devstack.EnsureCertificates(filepath.Join(e.dir, "tls")); err != nil {
		t.Fatal(err)
	}
	if e.d, err = db.Open(t.Context(), db.Config{URL: e.database, MaxConns: 4}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.d.Close)
	e.startNATS()
	for _, name := range []string{"one", "two", "three"} {
		e.replicas = append(e.replicas, e.startReplica(name))
	}
	for _, r := range e.replicas {
		until(t, r.url+" is ready", func() error { return readiness(r.url) })
	}
	return e
}

// startNATS starts the cluster with the configuration that the platform prints.
func (e *estate) startNATS() {
	e.t.Helper()
	cmd := exec.Command(filepath.Join(bin, "muster"), "server", "nats-config")
	cmd.Env = append(os.Environ(), "MUSTER_SECRET="+estateSecret)
	include, err := cmd.Output()
	if err != nil {
		e.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(e.dir, "muster.conf"), include, 0o600); err != nil {
		e.t.Fatal(err)
	}
	listen, route := freeAddrs(e.t, 3), freeAddrs(e.t, 3)
	self, err := os.Executable()
	if err != nil {
		e.t.Fatal(err)
	}
	for i := range listen {
		conf := fmt.Sprintf("include muster.conf\nserver_name: nats-%d\nlisten: %s\nping_interval: 10\n"+
			"tls { cert_file: %q, key_file: %q, timeout: 10, connection_rate_limit: 500 }\n"+
			"cluster { name: external, listen: %s, no_advertise: true, routes: [ nats-route://%s ] }\n",
			i, listen[i], e.certs.Cert, e.certs.Key, route[i], strings.Join(route, ", nats-route://"))
		path := filepath.Join(e.dir, fmt.Sprintf("nats-%d.conf", i))
		if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
			e.t.Fatal(err)
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), envNATS+"="+path)
		e.nats = append(e.nats, e.run(fmt.Sprintf("nats-%d", i), cmd))
		e.hosts = append(e.hosts, "tls://"+listen[i])
	}
}

func (e *estate) startReplica(name string) *replica {
	e.t.Helper()
	at := freeAddrs(e.t, 3)
	all := strings.Join(e.hosts, ",")
	cmd := exec.Command(filepath.Join(bin, "muster"), "server")
	cmd.Env = append(os.Environ(), "MUSTER_DATABASE_URL="+e.database, "MUSTER_SECRET="+estateSecret,
		"MUSTER_REPLICA="+name, "MUSTER_LISTEN="+at[0], "MUSTER_AGENT_LISTEN="+at[1], "MUSTER_METRICS_LISTEN="+at[2],
		"MUSTER_ADVERTISE_STREAM_URL=https://"+at[1], "MUSTER_NATS_URL="+all, "MUSTER_NATS_PUBLIC_URL="+all,
		"MUSTER_TLS_CERT="+e.certs.Cert, "MUSTER_TLS_KEY="+e.certs.Key, "MUSTER_TLS_CA="+e.certs.CA,
		"MUSTER_ALLOW_SIMULATED=true", "MUSTER_DB_CONNS=12")
	p := e.run(name, cmd)
	return &replica{url: "http://" + at[0], cmd: p.cmd, ended: p.ended}
}

// count returns what a query counts.
func (e *estate) count(query string, args ...any) (n int64) {
	e.t.Helper()
	if err := e.d.Pool.QueryRow(e.t.Context(), query, args...).Scan(&n); err != nil {
		e.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// dump shows some windows and meters, for a failed test.
func (e *estate) dump() (out string) {
	e.t.Helper()
	err := e.d.Pool.QueryRow(e.t.Context(), `SELECT coalesce(string_agg(v, E'\n'), '') FROM (SELECT l.cluster_id ||
		' rank ' || l.rank || ' billed ' || m.posted_billed_ms || ' windows ' ||
		(SELECT string_agg(w.opened_ms || '-' || w.closed_ms, ' ' ORDER BY w.n) FROM cluster_window w
		WHERE w.cluster_id = l.cluster_id) AS v FROM lease l JOIN lease_meter m ON m.lease_id = l.id
		ORDER BY m.posted_billed_ms - (SELECT sum(w.closed_ms - w.opened_ms) FROM cluster_window w WHERE w.n = 1 AND
		w.cluster_id = l.cluster_id) LIMIT 10) x`).Scan(&out)
	if err != nil {
		e.t.Error(err)
	}
	return out
}

// tenant rents at whichever replica answers.
type tenant struct {
	e     *estate
	token string
}

func (e *estate) tenant(w *fleettest.World, name string) tenant {
	e.t.Helper()
	p := w.SignUp(name)
	w.Exec("INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, 'owner')", p.Org, p.User)
	w.Fund(p.Org, 1000*money.Unit)
	_, secret, err := account.New(e.d, account.Config{}).Tokens.Issue(e.t.Context(), p, account.NewToken{
		Name: "test", Scopes: account.Scopes(),
	})
	w.Must(err)
	return tenant{e, secret}
}

// anywhere asks one replica after another until one answers, beginning with the given one.
func (r tenant) anywhere(ctx context.Context, first int, do func(context.Context, *client.Client) error) error {
	var err error
	for i := range 3 * len(r.e.replicas) {
		var c *client.Client
		if c, err = client.New(r.e.replicas[(first+i)%len(r.e.replicas)].url, r.token); err != nil {
			return err
		}
		if err = do(ctx, c); fault.KindOf(err) != fault.Unavailable {
			return err
		}
	}
	return err
}

// gang rents a cluster and waits until it runs.
func (r tenant) gang(ctx context.Context, nodes, first int) (cl client.Cluster, err error) {
	err = r.anywhere(ctx, first, func(ctx context.Context, c *client.Client) (err error) {
		cl, err = c.Clusters.Rent(ctx, client.Spec{Nodes: nodes, GPUsPerNode: 1, Image: "registry.example/train:1",
			Command: []string{"train"}, DiskGB: 10})
		return err
	})
	if err != nil {
		return cl, err
	}
	return cl, r.wait(ctx, cl, client.Running, first)
}

func (r tenant) wait(ctx context.Context, cl client.Cluster, state client.State, first int) error {
	return r.anywhere(ctx, first, func(ctx context.Context, c *client.Client) error {
		got, err := c.Clusters.Wait(ctx, cl.ID, state, nil)
		if err == nil && got.State != state {
			return fmt.Errorf("%s is %s: %s", cl.ID, got.State, got.Detail)
		}
		return err
	})
}

func (r tenant) release(ctx context.Context, cl client.Cluster, first int) error {
	err := r.anywhere(ctx, first, func(ctx context.Context, c *client.Client) error {
		_, err := c.Clusters.Release(ctx, cl.ID)
		return err
	})
	if err != nil {
		return err
	}
	return r.wait(ctx, cl, client.Released, first)
}

// While clusters run and others are rented and released, a NATS server and then a replica are killed. No cluster is
// suspended or lost, no host is blamed, and every millisecond that ran is billed: exactly what the windows span.
func TestAReplicaAndANATSServerAreKilledUnderLoad(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	w := fleettest.New(t, e.d)
	operator, m := w.SignUp("Operator"), markettest.New(w, market.Config{})
	const gangs, spare = 4, 2
	fleet := e.newFleet(w, operator, m, 2*gangs+spare)
	renter, others := e.tenant(w, "Renter"), e.tenant(w, "Others")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	var running []client.Cluster
	for i := range gangs {
		c, err := renter.gang(ctx, 2, i)
		if err != nil {
			t.Fatalf("rent %d: %v", i, err)
		}
		running = append(running, c)
	}
	stop, churned := make(chan struct{}), atomic.Int64{}
	var churn sync.WaitGroup
	for i := range spare {
		churn.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				c, err := others.gang(ctx, 1, n)
				if err == nil {
					err = others.release(ctx, c, n)
				}
				if err != nil && !fault.Is(err, fault.NoCapacity) { // the host is still cleaning up
					t.Errorf("a short cluster: %v", err)
					return
				}
				churned.Add(1)
			}
		})
	}
	again := func(what string) {
		t.Helper()
		before := fleet.reports()
		until(t, "every host reports after "+what, func() error { return fleet.reportedSince(before, 3) })
	}
	again("the start")
	e.nats[1].kill()
	again("the death of a NATS server")
	e.replicas[2].kill()
	again("the death of a replica")
	lost := time.Now().Add(40 * time.Second) // longer than the silence of a lost host
	until(t, "silence would have been noticed", func() error {
		if time.Now().Before(lost) {
			return errNotYet
		}
		return nil
	})
	close(stop)
	churn.Wait()
	if churned.Load() == 0 {
		t.Error("nothing was rented meanwhile")
	}
	t.Logf("%d short clusters were rented and released meanwhile", churned.Load())
	for i, c := range running {
		if err := renter.release(ctx, c, i); err != nil {
			t.Errorf("release %s: %v", c.ID, err)
		}
	}
	until(t, "all clusters are settled", func() error {
		if n := e.count("SELECT count(*) FROM cluster WHERE settled_at IS NULL"); n > 0 {
			return fmt.Errorf("%d are not", n)
		}
		return nil
	})
	fleet.stop()
	e.checkFaultless()
	if left := fleet.unsent(); left > 0 {
		t.Errorf("%d segments were never acknowledged", left)
	}
	books, err := ledger.CheckAll(t.Context(), e.d)
	if err != nil || !books.Balanced() {
		t.Errorf("the ledger: %+v, %v", books.Problems, err)
	}
}

// spans are what the windows of clusters span, in ms: the run, and with it at most 15 s after the release, of which
// that is billed in which the program ran.
const spans = `WITH spans AS (SELECT cluster_id, sum(closed_ms - opened_ms) AS ms, min(opened_ms) AS since,
	max(closed_ms) AS until, sum(closed_ms - opened_ms) FILTER (WHERE n = 1) AS run
	FROM cluster_window GROUP BY cluster_id) `

// checkFaultless checks that nothing is recorded against any host, and that the time billed is the time of the windows.
func (e *estate) checkFaultless() {
	e.t.Helper()
	for what, query := range map[string]string{
		"suspensions":            "SELECT count(*) FROM suspension",
		"strikes":                "SELECT count(*) FROM gang_strike",
		"disputes between ranks": "SELECT count(*) FROM undecided_span",
		"credits":                "SELECT count(*) FROM service_credit",
		"replaced ranks":         "SELECT count(*) FROM node_replacement",
		"clusters that failed":   "SELECT count(*) FROM cluster WHERE state = 'failed'",
		"lost ranks":             "SELECT count(*) FROM cluster_event WHERE kind IN ('node_lost', 'degraded')",
		"segments refused":       "SELECT count(*) FROM segment_quarantine",
		"clusters with a pause in what is billed": spans + `SELECT count(*) FROM spans WHERE ms <> until - since`,
		// A lost segment is two seconds. A lease's start moves by less when a quicker report re-anchors its host's clock.
		"leases that are not billed for all of the run": spans + `SELECT count(*) FROM spans s JOIN lease l ON
			l.cluster_id = s.cluster_id JOIN lease_meter m ON m.lease_id = l.id
			WHERE m.posted_billed_ms NOT BETWEEN s.run - 1000 AND s.ms`,
	} {
		if n := e.count(query); n != 0 {
			e.t.Errorf("%d %s", n, what)
			e.t.Log(e.dump())
		}
	}
	if n := e.count("SELECT coalesce(sum(posted_billed_ms), 0)::bigint FROM lease_meter"); n < 8*40_000 {
		e.t.Errorf("only %d ms were billed", n)
	}
}
