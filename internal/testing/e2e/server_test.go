package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// Tests that need a whole platform, or interrupt one, share one: each finds it idle and leaves it so.
func TestOnOnePlatformInTurn(t *testing.T) {
	t.Parallel()
	p := own(t)
	inTurn(t, p, []turn{
		{"quotes end", quotesEnd},
		{"the server is killed", theServerIsKilled},
		{"the database is restarted", theDatabaseIsRestarted},
		{"stop and start again", stopAndStartAgain},
	})
}

// turn is a test on a platform that it has for itself.
type turn struct {
	name string
	test func(*testing.T, *platform)
}

// inTurn runs tests on one platform, up to the first that fails, which may have left it in any state.
func inTurn(t *testing.T, p *platform, all []turn) {
	t.Helper()
	for _, x := range all {
		t.Run(x.name, func(t *testing.T) { x.test(t, p) })
		if t.Failed() {
			return
		}
	}
}

// The server is killed while clusters are in every phase. What runs goes on without it; a new server takes up what it
// finds, and all comes to its end as if nothing had been.
func theServerIsKilled(t *testing.T, p *platform) {
	r := p.renter(t, 20*money.Unit)
	big := p.bigImage(t, 100)
	running := r.run(t, p.endless())
	idle := r.run(t, p.spec(1, 1, "sleep", "600"))
	thaw := p.freeze(t, "local-2")
	joining := r.rent(t, p.training(time.Second))
	r.awaitNode(t, joining, "joining")
	s := p.training(time.Second)
	s.Image = big
	pulling := r.rent(t, s)
	r.awaitNode(t, pulling, held...)

	p.kill(t)
	thaw()
	eventually(t, "both agents run without the server", func() bool { return len(p.processes("muster-agent run")) == 2 })
	p.again(t)
	r.connect(t)
	r.enough(t, running)
	var usages []client.Usage
	for what, c := range map[string]client.Cluster{"running": running, "joining": joining, "pulling": pulling} {
		t.Log(what)
		u := r.trained(t, c)
		r.billed(t, c, u)
		usages = append(usages, u)
	}
	if now, err := r.Clusters.Get(t.Context(), idle.ID); err != nil || now.State != client.Running || now.Epoch != 1 {
		t.Errorf("%s in epoch %d: %v", now.State, now.Epoch, err)
	}
	if _, err := r.Clusters.Release(t.Context(), idle.ID); err != nil {
		t.Fatal(err)
	}
	u := r.settle(t, idle)
	r.billed(t, idle, u)
	r.owes(t, append(usages, u)...)
	p.idle(t)
	p.check(t)
}

// PostgreSQL is restarted at once, as after a crash, under clusters that run and one that starts.
func theDatabaseIsRestarted(t *testing.T, p *platform) {
	r := p.renter(t, 20*money.Unit)
	running := r.run(t, p.endless())
	starting := r.rent(t, p.training(time.Second))
	p.restartPostgres(t)
	r.enough(t, running)
	u1, u2 := r.trained(t, running), r.trained(t, starting)
	r.billed(t, running, u1)
	r.billed(t, starting, u2)
	r.owes(t, u1, u2)
	p.idle(t)
	p.check(t)
}

// restartPostgres stops the platform's PostgreSQL without letting it finish anything (SIGQUIT is its immediate
// shutdown), and waits until the platform has started it again. `pg_ctl restart` would compete for that start.
func (p *platform) restartPostgres(t *testing.T) {
	t.Helper()
	before := p.postmaster()
	if before == 0 {
		t.Fatal("PostgreSQL does not run")
	}
	if err := syscall.Kill(before, syscall.SIGQUIT); err != nil {
		t.Fatalf("stop PostgreSQL: %v", err)
	}
	until(t, "PostgreSQL runs again", func() error {
		if p.postmaster() == before {
			return errors.New("its lock file names the old process")
		}
		conn, err := pgx.Connect(t.Context(), p.PostgresURL)
		if err != nil {
			return err
		}
		return conn.Close(t.Context())
	})
}

// postmaster returns the process ID in the lock file of the platform's PostgreSQL, or 0 if none runs.
func (p *platform) postmaster() int {
	raw, err := os.ReadFile(filepath.Join(p.state.Postgres.Data, "postmaster.pid"))
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	pid, _ := strconv.Atoi(line) // an empty file is being written
	return pid
}

// Stopped in order, nothing runs any more and what ran is settled; started again, all data is there.
func stopAndStartAgain(t *testing.T, p *platform) {
	r := p.renter(t, 10*money.Unit)
	c := r.run(t, p.endless())
	if out, err := exec.Command(filepath.Join(bin, "muster"), "dev", "--down", p.dir).CombinedOutput(); err == nil {
		t.Errorf("--down of a running platform: %s", out)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	for _, l := range p.running() {
		t.Errorf("left after the stop: %s", l)
	}
	url := p.URL
	p.again(t)
	if p.URL != url {
		t.Errorf("the address changed from %s to %s", url, p.URL)
	}
	got, err := r.Clusters.Get(t.Context(), c.ID)
	if err != nil || got.State != client.Released {
		t.Fatalf("%s: %v", got.State, err)
	}
	r.owes(t, r.settle(t, c))
	r.trained(t, r.rent(t, p.training(time.Second)))
	p.idle(t)
}

// After a kill, --down finds and removes everything that still runs.
func TestDownAfterAKill(t *testing.T) {
	t.Parallel()
	p := own(t)
	r := p.renter(t, 10*money.Unit)
	r.run(t, p.endless())
	p.kill(t)
	out, err := exec.Command(filepath.Join(bin, "muster"), "dev", "--down", p.dir).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	for _, l := range append(p.running(), p.stored()...) {
		t.Errorf("left after --down: %s", l)
	}
}
