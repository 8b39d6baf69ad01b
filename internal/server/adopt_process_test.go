package server

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/restore"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/events"
	"github.com/musterhq/muster/internal/stripe/outbox"
	"github.com/musterhq/muster/internal/stripe/sandbox"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// processRole is the environment variable that makes the test binary a process of the platform: serve or adopt.
const processRole = "MUSTER_TEST_PROCESS"

// TestProcess is no test: it is the main function of processes that other tests start.
func TestProcess(t *testing.T) {
	role := os.Getenv(processRole)
	if role == "" {
		t.Skip("not a process of another test")
	}
	environ := map[string]string{}
	for _, kv := range os.Environ() {
		if k, v, _ := strings.Cut(kv, "="); strings.HasPrefix(k, "MUSTER_") && !strings.HasPrefix(k, "MUSTER_TEST_") {
			environ[k] = v
		}
	}
	cfg, err := LoadConfig(environ)
	if err != nil {
		t.Fatal(err)
	}
	cfg.stripeURL = os.Getenv("MUSTER_TEST_STRIPE")
	switch role {
	case "serve":
		err = Run(t.Context(), cfg, os.Stderr)
	case "adopt":
		var r restore.Report
		r, err = AdoptRestore(t.Context(), cfg, restore.Options{}, os.Stderr)
		fmt.Fprintf(os.Stderr, "adopted: %+v\n", r)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// adoption is a platform whose processes are started, killed and started again on copies of its database. Its Stripe
// outlives all of them.
type adoption struct {
	t                *testing.T
	fake             *sandbox.Server
	stripe           string // URL of the fake
	renter, operator id.Org
}

// command returns a process of the platform on a database.
func (a *adoption) command(role, url string) *exec.Cmd {
	c := exec.CommandContext(a.t.Context(), os.Args[0], "-test.run=^TestProcess$", "-test.timeout=5m")
	c.Env = append(os.Environ(), processRole+"="+role, "MUSTER_TEST_STRIPE="+a.stripe, "MUSTER_DATABASE_URL="+url,
		"MUSTER_STRIPE_KEY=sk_test_x", "MUSTER_STRIPE_WEBHOOK_SECRET=whsec_x", "MUSTER_CURRENCY=EUR",
		"MUSTER_SECRET="+strings.Repeat("ab", 32), "MUSTER_PUBLIC_URL=http://127.0.0.1:1", "MUSTER_LISTEN=127.0.0.1:0",
		"MUSTER_AGENT_LISTEN=127.0.0.1:0", "MUSTER_MIGRATE=false")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return c
}

// run starts a process and waits for its end. It returns what the process printed.
func (a *adoption) run(role, url string) (string, error) {
	out, err := a.command(role, url).CombinedOutput()
	return string(out), err
}

// serve starts a server, and kills it (SIGKILL) once done returns true.
func (a *adoption) serve(url string, done func() bool) {
	a.t.Helper()
	c := a.command("serve", url)
	var log bytes.Buffer
	stderr, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		a.t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for s := bufio.NewScanner(stderr); s.Scan(); {
			log.WriteString(s.Text() + "\n")
		}
	}()
	limit, tick := time.NewTimer(2*time.Minute), time.NewTicker(50*time.Millisecond)
	defer limit.Stop()
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-over:
			a.t.Fatalf("the server ended: %v\n%s", c.Wait(), log.String())
		case <-limit.C:
			_ = c.Process.Kill()
			<-over
			a.t.Fatalf("the server does not do what it should\n%s", log.String())
		}
	}
	_ = c.Process.Kill()
	<-over
	_ = c.Wait()
}

// on calls f with a database.
func (a *adoption) on(url string, f func(ctx context.Context, d *db.DB)) {
	a.t.Helper()
	d, err := db.Open(a.t.Context(), db.Config{URL: url, MaxConns: 4})
	if err != nil {
		a.t.Fatal(err)
	}
	defer d.Close()
	f(a.t.Context(), d)
}

func (a *adoption) exec(url, sql string, args ...any) {
	a.t.Helper()
	a.on(url, func(ctx context.Context, d *db.DB) {
		if _, err := d.Pool.Exec(ctx, sql, args...); err != nil {
			a.t.Fatal(err)
		}
	})
}

// holds reports whether a condition of SQL is true.
func (a *adoption) holds(url, sql string, args ...any) (yes bool) {
	a.t.Helper()
	a.on(url, func(ctx context.Context, d *db.DB) {
		if err := d.Pool.QueryRow(ctx, "SELECT "+sql, args...).Scan(&yes); err != nil {
			a.t.Fatal(err)
		}
	})
	return yes
}

// moved returns how many charges and transfers Stripe has made.
func (a *adoption) moved() [2]int {
	charges, _ := a.fake.Charges.Total()
	transfers, _ := a.fake.Transfers.Total("")
	return [2]int{charges, transfers}
}

// setUp prepares a renter who paid 100.00 and has 60.00 left, and an operator to whom 40.00 are payable now. Stripe has
// made one charge and no transfer.
func (a *adoption) setUp(url string) {
	a.t.Helper()
	must := func(err error) {
		a.t.Helper()
		if err != nil {
			a.t.Fatal(err)
		}
	}
	client, err := stripe.New(stripe.Config{Key: "sk_test_x", WebhookSecret: "whsec_x", URL: a.stripe})
	must(err)
	a.on(url, func(ctx context.Context, d *db.DB) {
		log := slog.New(slog.DiscardHandler)
		out := outbox.New(d, client, log)
		in := events.New(d, client, log)
		pay, err := payment.New(d, out, in, payment.Config{
			Currency: "EUR", DefaultMethod: "pm_card_visa", ReturnURL: "http://m.test",
		}, log)
		must(err)
		paying, err := payout.New(d, out, in, payout.Config{Currency: "EUR", PageURL: "http://m.test"}, log)
		must(err)
		people := map[string]account.Principal{}
		for _, name := range []string{"renter", "operator"} {
			p, err := account.New(d, account.Config{}).SignUps.Register(ctx, account.SignUp{
				Email: name + "@example.com", Password: "a password of theirs", Name: name,
			})
			must(err)
			people[name] = p
		}
		a.renter, a.operator = people["renter"].Org, people["operator"].Org
		_, _, err = pay.TopUps.Create(ctx, people["renter"], payment.TopUpRequest{Amount: 100 * money.Unit}, idem.Request{})
		must(err)
		_, _, err = paying.Onboard(ctx, people["operator"], "DE", idem.Request{})
		must(err)
		a.fake.Accounts.Onboard(a.fake.Accounts.IDs()[0])
		for _, x := range a.fake.Webhooks.Deliveries() {
			must(in.Receive(ctx, x.Payload, x.Signature))
		}
		_, err = in.Process(ctx)
		must(err)
		must(d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			_, err := ledger.Post(ctx, tx, ledger.Entry{Kind: "topup", Key: "use", Transfers: []ledger.Transfer{{
				Debit: ledger.Wallet(a.renter, "EUR"), Credit: ledger.HostPayable(a.operator, "EUR"), Amount: 40 * money.Unit,
			}}})
			return err
		}))
	})
	a.exec(url, "UPDATE payout_account SET next_at = clock_timestamp() - interval '1 second', pay_at = 'epoch'")
}

// TestRestoredProcessesRepeatNoPayment runs servers as processes, with an imitation of Stripe outside: one pays an
// operator and is killed, its database is restored to before that, and adopted by processes that are killed on
// the way. Stripe makes each charge and transfer once.
func TestRestoredProcessesRepeatNoPayment(t *testing.T) {
	t.Parallel()
	fake, err := sandbox.New(sandbox.Config{WebhookSecret: "whsec_x", PublicURL: "http://pay.test"})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(fake)
	defer srv.Close()
	a := &adoption{t: t, fake: fake, stripe: srv.URL}
	original := dbtest.NewURL(t)
	a.on(original, func(ctx context.Context, d *db.DB) { // the first server
		if err := restore.Check(ctx, d, false); err != nil {
			t.Fatal(err)
		}
	})
	a.setUp(original)
	backup := dbtest.Copy(t, original)
	const paid = "EXISTS (SELECT FROM payout WHERE state = 'paid' AND stripe_transfer IS NOT NULL)"
	a.serve(original, func() bool { return a.holds(original, paid) })
	want := [2]int{1, 1}
	if got := a.moved(); got != want {
		t.Fatalf("before the restore: %v charges and transfers, want %v", got, want)
	}
	if out, err := a.run("serve", backup); err == nil || !strings.Contains(out, "adopt-restore") {
		t.Fatalf("a server starts on a restored database: %v\n%s", err, out)
	}
	for i := range 3 { // killed early, killed later, complete
		c := a.command("adopt", backup)
		if i == 2 {
			if out, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			break
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		begun := func() bool { return i == 0 || a.holds(backup, "EXISTS (SELECT FROM restore)") }
		for !begun() {
			if c.ProcessState != nil {
				t.Fatal("it ended")
			}
		}
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	if !a.holds(backup, paid) {
		t.Error("the transfer is not in the books of the restored database")
	}
	a.exec(backup, "DELETE FROM sending_pause")
	a.exec(backup, "UPDATE payout_account SET next_at = clock_timestamp() - interval '1 second', pay_at = 'epoch'")
	// A second due payout, of what is earned afterwards, shows that the server has looked at everything.
	a.on(backup, func(ctx context.Context, d *db.DB) {
		if err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			_, err := ledger.Post(ctx, tx, ledger.Entry{Kind: "topup", Key: "use again", Transfers: []ledger.Transfer{{
				Debit: ledger.Wallet(a.renter, "EUR"), Credit: ledger.HostPayable(a.operator, "EUR"), Amount: 15 * money.Unit,
			}}})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	})
	a.serve(backup, func() bool {
		return a.holds(backup, "count(*) = 2 FROM payout WHERE state = 'paid' AND stripe_transfer IS NOT NULL")
	})
	if _, cents := a.fake.Transfers.Total(""); a.moved() != [2]int{1, 2} || cents != 55_00 {
		t.Errorf("after the restore: %v charges and transfers, %d cents paid out; want 1 and 2, 5500 cents", a.moved(), cents)
	}
}
