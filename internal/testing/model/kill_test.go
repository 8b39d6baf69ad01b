package model

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// envWorker makes the test binary a worker: it names the file with its orders.
const envWorker = "MUSTER_PROOF_WORKER"

// orders are what a worker sends, over and over in its own order, until it is killed.
type orders struct {
	URL        string
	Deliveries []metering.Delivery
	Clusters   []id.Cluster
}

func TestMain(m *testing.M) {
	if file := os.Getenv(envWorker); file != "" {
		if err := work(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// work says a line after each delivery that was taken in.
func work(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var o orders
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	ctx := context.Background()
	d, err := db.Open(ctx, db.Config{URL: o.URL})
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		n := rand.IntN(len(o.Deliveries))
		_, err := metering.IngestAll(ctx, d, o.Deliveries[n:min(len(o.Deliveries), n+1+rand.IntN(4))])
		if err == nil {
			err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
				return metering.Post(ctx, tx, o.Clusters[rand.IntN(len(o.Clusters))])
			})
		}
		if err == nil {
			fmt.Println("did")
			continue
		}
		time.Sleep(50 * time.Millisecond) // the database is away
	}
}

// Workers and the database are killed in the middle of whatever they do, again and again: what was acknowledged stays,
// what was not leaves nothing, what is left each time is what the oracle makes of it, and every bill is the oracle's.
func TestKilledWorkersAndDatabases(t *testing.T) {
	t.Parallel()
	s := dbtest.NewServer(t)
	url := s.NewURL()
	d, err := db.Open(t.Context(), db.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	hosts := newFleet(t, d, r, 2)
	o := orders{URL: url}
	var all []*rental
	for range 3 {
		c := newRental(t, d, r, hosts, day/12)
		all, o.Clusters = append(all, c), append(o.Clusters, c.cluster)
		for n := range c.steps {
			if err := c.pass(t.Context(), d, n); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range c.leases {
			for segs := l.sent; len(segs) > 0; {
				n := min(len(segs), 1+r.IntN(20))
				o.Deliveries = append(o.Deliveries, signedOrNot(r, l.host, segs[:n]))
				segs = segs[n:]
			}
		}
	}
	r.Shuffle(len(o.Deliveries), func(i, j int) { o.Deliveries[i], o.Deliveries[j] = o.Deliveries[j], o.Deliveries[i] })
	file := filepath.Join(t.TempDir(), "orders")
	b, err := json.Marshal(o)
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for round := range 6 {
		a, b := startWorker(t, file), startWorker(t, file)
		a.mustDo(t, 1+r.IntN(5))
		b.mustDo(t, 1)
		if round%3 == 2 {
			s.Kill()
			s.Start()
			a.mustDo(t, 1+r.IntN(5)) // it came back to them
		}
		a.kill()
		b.kill()
		for _, c := range all {
			mustHoldAgain(t, d, c)
		}
		if round%3 == 2 {
			mustBalanceAgain(t, d)
		}
	}
	inOrder(t, d, o.Deliveries...)
	for _, c := range all {
		late(t, d, c)
		c.check(t, d)
		c.checkMoney(t, d)
	}
	mustBalance(t, d)
}

// mustBalanceAgain is mustBalance on a pool whose connections may have died with the server.
func mustBalanceAgain(t *testing.T, d *db.DB) {
	t.Helper()
	var err error
	for range d.Pool.Config().MaxConns + 1 {
		var b ledger.TrialBalance
		if b, err = ledger.Check(t.Context(), d); err == nil {
			if !b.Balanced() {
				t.Fatal(b.Problems)
			}
			return
		}
	}
	t.Fatal(err)
}

// mustHoldAgain is mustHold on such a pool.
func mustHoldAgain(t *testing.T, d *db.DB, c *rental) {
	t.Helper()
	var err error
	for range d.Pool.Config().MaxConns + 1 {
		var m moment
		if m, err = c.look(t.Context(), d); err == nil {
			if err := c.judge(m); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal(err)
}

type worker struct {
	cmd    *exec.Cmd
	output *bufio.Scanner
}

func startWorker(t *testing.T, file string) *worker {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envWorker+"="+file)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := &worker{cmd, bufio.NewScanner(out)}
	t.Cleanup(w.kill)
	return w
}

// mustDo waits until the worker has done n more things.
func (w *worker) mustDo(t *testing.T, n int) {
	t.Helper()
	for range n {
		if !w.output.Scan() {
			t.Fatalf("a worker ended: %v", w.output.Err())
		}
	}
}

func (w *worker) kill() {
	_ = w.cmd.Process.Kill() // twice is no harm
	_ = w.cmd.Wait()
}
