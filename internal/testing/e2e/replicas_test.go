package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

// replica is a `muster server` next to the platform's own, on the same database.
type replica struct {
	url   string
	ssh   string // host:port of its gateway
	cmd   *exec.Cmd
	ended chan struct{}
}

// routes are the settings that let a replica's embedded NATS find the others, and hosts dial back to this very replica.
func routes(name, stream, route string) []string {
	return []string{"MUSTER_REPLICA=" + name, "MUSTER_ADVERTISE_STREAM_URL=https://" + stream,
		"MUSTER_NATS_ROUTE_LISTEN=" + route, "MUSTER_NATS_ROUTE_URL=nats-route://" + route}
}

// startReplica starts one and waits until it says that it is ready.
func (p *platform) startReplica(t *testing.T, name string) *replica {
	t.Helper()
	at := freeAddrs(t, 6)
	log := filepath.Join(p.dir, name+".log")
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	r := &replica{
		url:   "http://" + at[0],
		ssh:   at[5],
		cmd:   exec.Command(filepath.Join(bin, "muster"), "server"),
		ended: make(chan struct{}),
	}
	tls := filepath.Join(p.dir, "tls")
	r.cmd.Env = append(append(os.Environ(), routes(name, at[1], at[4])...),
		"MUSTER_DATABASE_URL="+p.PostgresURL, "MUSTER_SECRET="+p.state.Secret, "MUSTER_LISTEN="+at[0], "MUSTER_AGENT_LISTEN="+
			at[1], "MUSTER_NATS_LISTEN="+at[2],
		"MUSTER_METRICS_LISTEN="+at[3], "MUSTER_TLS_CERT="+filepath.Join(tls, "server.pem"), "MUSTER_TLS_KEY="+
			filepath.Join(tls, "server.key"),
		"MUSTER_TLS_CA="+filepath.Join(tls, "ca.pem"), "MUSTER_ALLOW_SIMULATED=true",
		"MUSTER_GATEWAY_LISTEN="+at[5], "MUSTER_APPS_DOMAIN=localhost:"+strings.Split(p.URL, ":")[2])
	r.cmd.Stdout, r.cmd.Stderr = out, out
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := startChild(r.cmd, func(error) { close(r.ended) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("--- %s\n%s", log, tail(log, 30))
		}
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
		<-r.ended
	})
	until(t, name+" is ready", func() error {
		select {
		case <-r.ended:
			t.Fatalf("%s ended", name)
		default:
		}
		return readiness(r.url)
	})
	return r
}

func (r *replica) kill() {
	_ = r.cmd.Process.Kill()
	<-r.ended
}

func readiness(url string) error {
	resp, err := http.Get(url + "/readyz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s", resp.Status, why)
	}
	return nil
}

// freeAddrs returns loopback addresses at which nothing listens, with ports that the kernel gives to no outgoing
// connection meanwhile.
func freeAddrs(t *testing.T, n int) (out []string) {
	t.Helper()
	for try := 0; len(out) < n; try++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(10000+rand.IntN(22000))))
		if err == nil {
			defer l.Close() // not before all are found
			out = append(out, l.Addr().String())
		} else if try > 1000 {
			t.Fatal(err)
		}
	}
	return out
}

// through is the renter at another replica.
func (r *renter) through(t *testing.T, url string) *client.Client {
	t.Helper()
	c, err := client.New(url, r.token, client.WithHTTP(r.http))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// shellsThrough opens a shell on the same rank through each replica, whichever one the host is connected to, and an app
// and OpenSSH through one that is not the first: with the keys and the cookies of all.
func (p *platform) shellsThrough(t *testing.T, urls []string, gateway string) {
	t.Helper()
	r := p.renter(t, 10*money.Unit)
	s := p.spec(2, 1)
	s.Image, s.Command = p.shellImage(t), []string{"perl", "-e", httpServer}
	s.Ports = []client.Port{{Port: 8899, Protocol: "http"}}
	c := r.run(t, s)
	r.awaitListening(t, c)
	for i, url := range urls {
		conn, err := r.through(t, url).Clusters.SSH(t.Context(), c.ID, 1)
		if err != nil {
			t.Errorf("replica %d opens no shell: %v", i, err)
			continue
		}
		session, err := conn.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if out, err := session.Output("echo rank $NODE_RANK"); err != nil || string(out) != "rank 1\n" {
			t.Errorf("replica %d: %q %v", i, out, err)
		}
		conn.Close()
	}
	g := r.withKey(t) // who has seen the first's host key takes the other's for the same machine
	host, port, err := net.SplitHostPort(gateway)
	if err != nil {
		t.Fatal(err)
	}
	g.wants(t, "1\n", "", "-o", "HostName="+host, "-o", "Port="+port, "-o", "HostKeyAlias=["+strings.Replace(p.GatewayAddr,
		":", "]:", 1), c.ID.String()+".1@gateway", "echo $NODE_RANK")
	link, err := r.Clusters.GetPortLink(t.Context(), c.ID, 8899, client.RankQuery{Node: 1})
	if err != nil {
		t.Fatal(err)
	}
	b := newAppBrowser(t, strings.TrimPrefix(urls[1], "http://"))
	if status, body := b.get(t, link.URL); status != http.StatusOK || !strings.Contains(body, "GET / HTTP/1.1") {
		t.Errorf("a link of the first through the second: %d %s", status, body)
	}
	if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	r.owes(t, r.settle(t, c))
}

// Three replicas on one database and one fleet: any of them sells, watches, and reads logs; they never sell a GPU
// twice; and one that is killed takes nothing with it.
func TestReplicasShareAFleet(t *testing.T) {
	t.Parallel()
	p := own(t)
	p.kill(t)
	p.env = routes("first", strings.TrimPrefix(p.AgentURL, "https://"), freeAddrs(t, 1)[0])
	p.again(t)
	second, third := p.startReplica(t, "second"), p.startReplica(t, "third")
	urls := []string{p.URL, second.url, third.url}
	until(t, "the first is ready", func() error { return readiness(p.URL) })

	r := p.renter(t, 20*money.Unit)
	c, err := r.through(t, second.url).Clusters.Rent(t.Context(), p.training(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	var logs []func() string
	for _, url := range urls {
		logs = append(logs, (&renter{Client: r.through(t, url)}).follow(t.Context(), t, c, 1))
	}
	if got, err := r.through(t, third.url).Clusters.Wait(t.Context(), c.ID, client.Released, nil); err != nil ||
		got.Reason != "completed" {
		t.Errorf("%s %s: %v\n%s", got.State, got.Detail, err, r.timeline(t, c))
	}
	for i, log := range logs {
		if log() != logs[0]() || !strings.Contains(log(), "rank 1 done") {
			t.Errorf("replica %d read another log:\n%s", i, log())
		}
	}
	usages := []client.Usage{r.settle(t, c)}
	r.owes(t, usages...)

	p.shellsThrough(t, urls, second.ssh)

	h := hammer{t: t, p: p, urls: urls}
	h.run(9, 6, func() { third.kill() })
	const twice = `SELECT count(*) FROM gpu_claim a JOIN gpu_claim b ON a.gpu_id = b.gpu_id AND a.id < b.id
		AND tstzrange(a.created_at, a.ended_at) && tstzrange(b.created_at, b.ended_at)`
	if n := p.sql(t, twice); n != 0 {
		t.Errorf("%d times a GPU was sold twice", n)
	}
	t.Logf("%d quotes, %d rentals, %d times nothing was free", h.quoted.Load(), h.rented.Load(), h.full.Load())
	p.idle(t)
	p.check(t)
}

// hammer lets many renters take and give back GPUs through all replicas at once.
type hammer struct {
	t                    *testing.T
	p                    *platform
	urls                 []string
	quoted, rented, full atomic.Int64
}

// run has each renter go so many rounds; half way through, halfway is called.
func (h *hammer) run(renters, rounds int, halfway func()) {
	var group sync.WaitGroup
	var done atomic.Int64
	var once sync.Once
	for range renters {
		r := h.p.renter(h.t, 20*money.Unit)
		group.Go(func() {
			for range rounds {
				h.round(r)
				if int(done.Add(1)) >= renters*rounds/2 {
					once.Do(halfway)
				}
			}
			h.after(r)
		})
	}
	group.Wait()
	if h.rented.Load() >= fewest {
		return
	}
	// the machine was full all the time: what was rented first was still being cleaned up
	late := h.p.renter(h.t, 20*money.Unit)
	eventually(h.t, "something is rented", func() bool { h.round(late); return h.rented.Load() >= fewest })
	h.after(late)
}

// fewest is how many rentals say something.
const fewest = 3

// round rents and releases, or quotes and gives back, each call through a replica of its own.
func (h *hammer) round(r *renter) {
	ctx := h.t.Context()
	spec := h.p.spec(1+rand.IntN(2), 1+rand.IntN(4), "sleep", "600")
	var q client.Quote
	if !h.try(r, "quote", func(c *client.Client) (err error) { q, err = c.Quotes.Create(ctx, spec); return err }) {
		return
	}
	h.quoted.Add(1)
	if rand.IntN(2) == 0 {
		h.try(r, "give back", func(c *client.Client) error { _, err := c.Quotes.Return(ctx, q.ID); return err })
		return
	}
	var cl client.Cluster
	if !h.try(r, "rent", func(c *client.Client) (err error) {
		cl, err = c.Clusters.RentQuote(ctx, q.ID, client.Spec{})
		return err
	}) {
		return
	}
	h.rented.Add(1)
	h.try(r, "release", func(c *client.Client) error { _, err := c.Clusters.Release(ctx, cl.ID); return err })
}

// try does something through one replica after another until one answers: a killed one does not.
func (h *hammer) try(r *renter, what string, do func(*client.Client) error) (done bool) {
	for _, i := range rand.Perm(len(h.urls)) {
		c, err := client.New(h.urls[i], r.token, client.WithHTTP(r.http))
		if err == nil {
			err = do(c)
		}
		switch fault.KindOf(err) {
		case "":
			return true
		case fault.NoCapacity:
			h.full.Add(1)
			return false
		case fault.QuotaExceeded:
			return false
		case fault.Unavailable:
			continue
		case fault.Conflict:
			if what == "rent" && strings.Contains(err.Error(), "rented already") {
				return false // by the replica that was killed before it could answer: see after
			}
		}
		h.t.Errorf("%s: %v", what, err)
		return false
	}
	h.t.Errorf("%s: no replica answers", what)
	return false
}

// after waits for the renter's clusters to be settled, and checks the renter's money.
func (h *hammer) after(r *renter) {
	page, err := client.All(h.t.Context(), r.Clusters.List, client.ClustersQuery{})
	if err != nil {
		h.t.Error(err)
		return
	}
	var usages []client.Usage
	for _, c := range page {
		if !c.State.Ended() { // rented by a replica that was killed before it could answer
			if _, err := r.Clusters.Release(h.t.Context(), c.ID); err != nil {
				h.t.Error(err)
			}
		}
		usages = append(usages, r.settle(h.t, c))
	}
	r.owes(h.t, usages...)
}
