package restore

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/events"
	"github.com/musterhq/muster/internal/stripe/outbox"
	"github.com/musterhq/muster/internal/stripe/reconcile"
	"github.com/musterhq/muster/internal/stripe/sandbox"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

const eur = "EUR"

// world is a Stripe, a renter and an operator, which outlive the database.
type world struct {
	t                *testing.T
	fake             *sandbox.Server
	client           *stripe.Client
	renter, operator account.Principal
}

// platform is Muster on one database.
type platform struct {
	*world
	d      *db.DB
	k      *dbtest.Killer
	sender *outbox.Outbox
	in     *events.Inbox
	rec    *reconcile.Reconciler
	pay    *payment.Payments
	out    *payout.Payouts
}

func newWorld(t *testing.T) *world {
	t.Helper()
	fake, err := sandbox.New(sandbox.Config{WebhookSecret: "whsec_x", PublicURL: "http://pay.test"})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(fake)
	t.Cleanup(srv.Close)
	c, err := stripe.New(stripe.Config{Key: "sk_test_x", WebhookSecret: "whsec_x", URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, fake: fake, client: c, renter: someone("r"), operator: someone("o")}
}

func someone(name string) account.Principal {
	return account.Principal{Org: id.New[id.Org](), User: id.New[id.User](), Email: name + "@b.c", OrgName: name}
}

func (w *world) on(url string) *platform {
	w.t.Helper()
	d, k := dbtest.Mortal(w.t, url)
	log := slog.New(slog.DiscardHandler)
	sender := outbox.New(d, w.client, log)
	in := events.New(d, w.client, log)
	pay, err := payment.New(d, sender, in, payment.Config{
		Currency:      eur,
		DefaultMethod: "pm_card_visa",
		ReturnURL:     "http://m.test/billing",
	}, log)
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := payout.New(d, sender, in, payout.Config{Currency: eur, PageURL: "http://m.test/payouts"}, log)
	if err != nil {
		w.t.Fatal(err)
	}
	return &platform{w, d, k, sender, in, reconcile.New(d, w.client, in.Refresh, eur, log), pay, out}
}

func (p *platform) exec(sql string, args ...any) {
	p.t.Helper()
	if _, err := p.d.Pool.Exec(p.t.Context(), sql, args...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *platform) signUp(who account.Principal) {
	p.t.Helper()
	p.exec("INSERT INTO org (id, name, personal) VALUES ($1, 'o', true)", who.Org)
}

func (p *platform) topUp(who account.Principal, n money.Nano) {
	p.t.Helper()
	t, _, err := p.pay.TopUps.Create(p.t.Context(), who, payment.TopUpRequest{Amount: n}, idem.Request{})
	if err != nil || t.State != payment.Succeeded {
		p.t.Fatal(t, err)
	}
}

func (p *platform) deliver() {
	p.t.Helper()
	for _, d := range p.fake.Webhooks.Deliveries() {
		if err := p.in.Receive(p.t.Context(), d.Payload, d.Signature); err != nil {
			p.t.Fatal(err)
		}
	}
	if _, err := p.in.Process(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

// earn books use of the operator's hosts by the renter.
func (p *platform) earn(n money.Nano) {
	p.t.Helper()
	if err := p.d.InTx(p.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{
			Kind: "topup",
			Key:  id.New[id.LedgerTx]().String(),
			Transfers: []ledger.Transfer{{
				Debit:  ledger.Wallet(p.renter.Org, eur),
				Credit: ledger.HostPending(p.operator.Org, eur),
				Amount: n,
			}},
		})
		return err
	}); err != nil {
		p.t.Fatal(err)
	}
}

// payDue makes everything payable and brings the day of the payout.
func (p *platform) payDue() {
	p.t.Helper()
	if _, err := payout.Mature(p.t.Context(), p.d, 0); err != nil {
		p.t.Fatal(err)
	}
	p.exec("UPDATE payout_account SET next_at = clock_timestamp() - interval '1 second', pay_at = 'epoch'")
	if _, err := p.out.PayDue(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	p.sendAll()
}

func (p *platform) sendAll() {
	p.t.Helper()
	for range 20 {
		p.exec("UPDATE stripe_outbox SET next_at = clock_timestamp() WHERE state IN ('pending', 'sent', 'unknown')")
		if n, err := p.sender.SendDue(p.t.Context()); err != nil || n == 0 {
			return
		}
	}
}

func (p *platform) balance(a ledger.Account) money.Nano {
	p.t.Helper()
	n, err := ledger.Balance(p.t.Context(), p.d.Q, a)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// wants asserts what Stripe did in all, and what the ledger of this database has.
func (p *platform) wants(when string, charges, transfers int, paid, wallet, earned money.Nano) {
	p.t.Helper()
	n, _ := p.fake.Charges.Total()
	m, cents := p.fake.Transfers.Total("")
	w := p.balance(ledger.Wallet(p.renter.Org, eur))
	e := p.balance(ledger.HostPending(p.operator.Org, eur)) + p.balance(ledger.HostPayable(p.operator.Org, eur))
	p.t.Logf("%s: %d charges, %d transfers of %d cents in all, wallet %s, owed to the operator %s", when, n, m, cents, w,
		e)
	if n != charges || m != transfers || money.Nano(cents)*money.Cent != paid || w != wallet || e != earned {
		p.t.Fatalf("%s: want %d charges, %d transfers of %s, wallet %s, owed %s", when, charges, transfers, paid, wallet,
			earned)
	}
	b, err := ledger.Check(p.t.Context(), p.d)
	if err != nil || !b.Balanced() {
		p.t.Fatal(b.Problems, err)
	}
}

func (p *platform) adopt() (Report, error) {
	return Adopt(p.t.Context(), p.d, Options{Payments: p.pay.Adoption, Reconciler: p.rec, Payouts: p.out})
}

// play returns the URL of a backup, and the ids of what Stripe did after it: the database that did it is gone.
func play(w *world) (backup string) {
	w.t.Helper()
	url := dbtest.NewURL(w.t)
	p := w.on(url)
	if err := Check(w.t.Context(), p.d, false); err != nil { // the first server
		w.t.Fatal(err)
	}
	p.signUp(w.renter)
	p.signUp(w.operator)
	p.topUp(w.renter, 100*money.Unit)
	if _, _, err := p.out.Onboard(w.t.Context(), w.operator, "DE", idem.Request{}); err != nil {
		w.t.Fatal(err)
	}
	w.fake.Accounts.Onboard(w.fake.Accounts.IDs()[0])
	p.deliver()
	p.earn(40 * money.Unit)
	p.exec("INSERT INTO pulse (listener, first_ms, last_ms, control_epoch) VALUES ('n1', 1, 1, 1)")
	p.exec("INSERT INTO host (id, org_id, name, region, state) VALUES ($1, $2, 'h', 'r', 'active')", id.New[id.Host](),
		w.operator.Org)
	p.d.Close()
	backup = dbtest.Copy(w.t, url)

	p = w.on(url)
	p.topUp(w.renter, 50*money.Unit)
	p.earn(30 * money.Unit)
	p.payDue()
	if _, _, err := p.pay.Refunds.GiveBack(w.t.Context(), w.renter, 20*money.Unit, idem.Request{}); err != nil {
		w.t.Fatal(err)
	}
	p.sendAll()
	late := someone("late")
	p.signUp(late)
	p.topUp(late, 25*money.Unit)
	p.wants("before the restore", 3, 1, 70*money.Unit, 60*money.Unit, 0)
	p.d.Close()
	return backup
}

// A top-up, use, a payout and a refund after the backup: once the restored database is adopted, nothing is paid twice
// and nothing is lost.
func TestARestoredDatabaseIsAdopted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.on(play(w))
	p.wants("restored", 3, 1, 70*money.Unit, 60*money.Unit, 40*money.Unit)
	if err := Check(t.Context(), p.d, false); !errors.Is(err, ErrRestored) {
		t.Fatal(err)
	}
	if err := Check(t.Context(), p.d, true); !errors.Is(err, ErrRestored) {
		t.Fatal(err)
	}
	r, err := p.adopt()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, f := range r.Findings {
		t.Logf("%+v", f)
		found[f.Kind+" "+string(f.Outcome)]++
	}
	if r.Nothing || r.Epoch < 2 || found["payment booked"] != 1 || found["payment open"] != 1 ||
		found["refund booked"] != 1 || found["transfer booked"] != 1 || len(r.Findings) != 4 {
		t.Fatalf("%+v", r)
	}
	if s, err := outbox.SendingState(t.Context(), p.d.Q); err != nil || !s.Paused {
		t.Fatalf("money is sent before anybody has read the report: %+v %v", s, err)
	}
	var gaps int // no host has reported since the backup
	if err := p.d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM deaf_gap WHERE cause = 'restore' AND listener = 'n1' "+
		"AND from_ms <= $1 AND to_ms >= $2", r.BackupAt.UnixMilli(), r.AdoptedAt.UnixMilli()).Scan(&gaps); err != nil ||
		gaps != 1 || r.Hosts != 1 {
		t.Fatalf("%d gaps, %d hosts that must report in full: %v", gaps, r.Hosts, err)
	}
	// 100 and 50 paid in, 20 given back, 40 used: the use after the backup is not in the ledger until its hosts report it
	// again.
	p.wants("adopted", 3, 1, 70*money.Unit, 90*money.Unit, -30*money.Unit)
	p.payDue()
	p.wants("while paused", 3, 1, 70*money.Unit, 90*money.Unit, -30*money.Unit)
	if err := Check(t.Context(), p.d, false); err != nil {
		t.Fatal(err)
	}
	if again, err := p.adopt(); err != nil || !again.Nothing || len(again.Findings) != 4 || again.Epoch != r.Epoch {
		t.Fatalf("%+v %v", again, err)
	}
	p.exec("DELETE FROM sending_pause")
	for range 3 {
		p.payDue()
	}
	p.wants("resumed", 3, 1, 70*money.Unit, 90*money.Unit, -30*money.Unit)
	p.earn(30 * money.Unit) // the hosts' journals, offered again because of the new epoch
	p.payDue()
	p.wants("reported again", 3, 1, 70*money.Unit, 60*money.Unit, 0)
	p.earn(15 * money.Unit)
	p.payDue()
	p.wants("later", 3, 2, 85*money.Unit, 45*money.Unit, 0)
	boss := account.Principal{Admin: true}
	if _, err := p.rec.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	rec, err := p.rec.Reconciliation(t.Context(), boss)
	if err != nil || rec.Waiting != 1 || rec.Suspense != 0 { // the payment of who signed up after the backup
		t.Fatalf("%+v %v", rec, err)
	}
}

// Killed anywhere and run again, an adoption ends as if it had not been killed.
func TestAnAdoptionDiesAnywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	backup := play(w)
	p := w.on(dbtest.Copy(t, backup))
	recorded := p.k.Record()
	if _, err := p.adopt(); err != nil {
		t.Fatal(err)
	}
	deaths := recorded()
	p.d.Close()
	for _, n := range append(deaths, 0) { // 0: it is not killed
		p := w.on(dbtest.Copy(t, backup))
		p.k.Left.Store(n)
		_, first := p.adopt() // nil where what failed is done again by a job of the server's
		p.k.Left.Store(0)
		if err := Check(t.Context(), p.d, false); (err == nil) != p.adopted() {
			t.Fatalf("killed at statement %d: a server may start: %v; adopted: %v", n, err == nil, p.adopted())
		}
		r, err := p.adopt()
		if first != nil && r.FinishedAt.IsZero() {
			t.Fatalf("killed at statement %d, run again: not finished", n)
		}
		if err != nil || len(r.Findings) != 4 {
			t.Fatalf("killed at statement %d, run again: %+v %v", n, r, err)
		}
		p.wants("adopted", 3, 1, 70*money.Unit, 90*money.Unit, -30*money.Unit)
		if err := Check(t.Context(), p.d, false); err != nil {
			t.Fatal(err)
		}
		p.d.Close()
	}
	t.Logf("killed at statements %v", deaths)
}

// adopted reports whether an adoption is complete.
func (p *platform) adopted() (yes bool) {
	p.t.Helper()
	if err := p.d.Pool.QueryRow(p.t.Context(),
		"SELECT EXISTS (SELECT FROM restore WHERE finished_at IS NOT NULL)").Scan(&yes); err != nil {
		p.t.Fatal(err)
	}
	return yes
}

// A promoted standby, a database that was moved, and one that PostgreSQL does not show to be restored.
func TestOtherDatabases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.on(dbtest.NewURL(t))
	if err := Check(t.Context(), p.d, false); err != nil {
		t.Fatal(err)
	}
	p.exec("UPDATE control SET timeline = timeline - 1")
	if err := Check(t.Context(), p.d, false); !errors.Is(err, ErrRestored) {
		t.Fatal(err)
	}
	if err := Check(t.Context(), p.d, true); err != nil { // and notes the timeline
		t.Fatal(err)
	}
	if err := Check(t.Context(), p.d, false); err != nil {
		t.Fatal(err)
	}
	p.exec("UPDATE control SET system_id = 1")
	if err := Check(t.Context(), p.d, true); !errors.Is(err, ErrRestored) {
		t.Fatal(err)
	}
	if r, err := Adopt(t.Context(), p.d, Options{NothingLost: true}); err != nil || !r.Nothing {
		t.Fatalf("%+v %v", r, err)
	}
	if err := Check(t.Context(), p.d, false); err != nil {
		t.Fatal(err)
	}
	if r, err := p.adopt(); err != nil || !r.Nothing {
		t.Fatalf("%+v %v", r, err)
	}
	now, err := p.d.Q.DatabaseTime(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.exec(`WITH o AS (INSERT INTO org (id, name, personal) VALUES (gen_random_uuid(), 'o', true) RETURNING id)
		INSERT INTO data_domain (id, org_id, key_sealed) SELECT gen_random_uuid(), id, 'x' FROM o`)
	for i, nothing := range []bool{false, true} {
		r, err := Adopt(t.Context(), p.d, Options{BackupAt: now, Payments: p.pay.Adoption, Reconciler: p.rec, Payouts: p.out})
		if err != nil || r.Nothing != nothing {
			t.Fatalf("%d: %+v %v", i, r, err)
		}
	}
	var next int64 // of a pack: the lost hours have used those before it
	err = p.d.Pool.QueryRow(t.Context(), "SELECT next_pack FROM data_domain").Scan(&next)
	if err != nil || next != 1_000_001 {
		t.Errorf("the next pack has number %d: %v", next, err)
	}
	// An adoption that was begun is completed first, also where PostgreSQL does not show that anything was restored.
	p.exec("UPDATE restore SET finished_at = NULL")
	for _, lossless := range []bool{false, true} {
		if err := Check(t.Context(), p.d, lossless); !errors.Is(err, ErrUnfinished) {
			t.Errorf("lossless %v: %v", lossless, err)
		}
	}
	if _, err := Adopt(t.Context(), p.d, Options{NothingLost: true}); err == nil {
		t.Error("an adoption that is not complete is forgotten")
	}
}
