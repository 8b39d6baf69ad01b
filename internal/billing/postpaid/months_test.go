package postpaid

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/sandbox"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// play is an org that uses what it likes, and what it should be billed for it, by a rule of its own: what it used, less
// what was given back and what it paid in, at its highest so far.
type play struct {
	*world
	r       *rand.Rand
	k       *dbtest.Killer
	cluster id.Cluster
	held    money.Nano
	used    money.Nano // in all, less what was given back
	paidIn  money.Nano
	billed  money.Nano // at the last charge
	open    string     // an invoice that the card did not pay, without a decision
	given   []string   // invoices that were given up, whatever came of them
}

func (x *play) hold() ledger.Account { return ledger.Hold(x.org, x.cluster, eur) }

// must does it again until no statement dies.
func (x *play) must(do func() error) {
	x.T.Helper()
	for range 200 {
		x.k.Left.Store(x.r.Int64N(25)) // 0 and above what it takes: nothing dies
		err := do()
		dead := x.k.Left.Swap(0) <= 0
		if err == nil {
			return
		}
		if !dead {
			x.T.Fatal(err)
		}
	}
	x.T.Fatal("it never gets done")
}

// hour does what may happen in one: time is held, used, given back; something late arrives; money is paid in.
func (x *play) hour() {
	x.T.Helper()
	wallet, pending, fee := ledger.Wallet(x.org, eur), ledger.HostPending(x.operator, eur), ledger.Fee(eur)
	amount := func(most money.Nano) money.Nano { return 1 + money.Nano(x.r.Int64N(int64(most))) }
	for range 1 + x.r.IntN(4) {
		switch x.r.IntN(7) {
		case 0, 1:
			n := amount(3 * money.Unit)
			switch err := x.Post("authorise", ledger.Transfer{Debit: wallet, Credit: x.hold(), Amount: n}); {
			case fault.Is(err, fault.InsufficientFunds) && x.terms().Stopped != "":
				continue // nothing is lent while an invoice is not paid
			case err != nil:
				x.T.Fatal(err)
			}
			x.held += n
		case 2, 3, 4: // of what is held, now or late
			if x.held == 0 {
				continue
			}
			n := amount(x.held)
			host := n * 85 / 100
			ts := []ledger.Transfer{{Debit: x.hold(), Credit: fee, Amount: n - host}}
			if host > 0 {
				ts = append(ts, ledger.Transfer{Debit: x.hold(), Credit: pending, Amount: host})
			}
			if err := x.Post("usage", ts...); err != nil {
				x.T.Fatal(err)
			}
			x.held, x.used = x.held-n, x.used+n
		case 5:
			if x.r.IntN(3) == 0 { // a host's fault
				n := amount(max(1, x.used/8))
				if err := x.Post("service_credit", ledger.Transfer{Debit: pending, Credit: wallet, Amount: n}); err != nil {
					x.T.Fatal(err)
				}
				x.used -= n
			} else if x.held > 0 { // a cluster ends: the rest is not needed
				if err := x.Post("hold_release", ledger.Transfer{Debit: x.hold(), Credit: wallet, Amount: x.held}); err != nil {
					x.T.Fatal(err)
				}
				x.held, x.cluster = 0, id.New[id.Cluster]()
			}
		case 6:
			if x.r.IntN(6) == 0 { // pays something in, or uses a code
				n := amount(2 * money.Unit)
				if err := x.Post("promo", ledger.Transfer{Debit: ledger.Promo(eur), Credit: wallet, Amount: n}); err != nil {
					x.T.Fatal(err)
				}
				x.paidIn += n
			}
		}
	}
	x.pass(time.Hour + time.Duration(x.r.Int64N(int64(time.Minute))))
	x.must(x.charge)
	x.billed = max(x.billed, x.used-x.paidIn)
	x.must(x.charge) // again in the same hour: nothing
}

// card sets the card that pays the org's next invoices.
func (x *play) card(method string) {
	x.T.Helper()
	x.Exec("UPDATE stripe_customer SET payment_method = $2 WHERE org_id = $1", x.org, method)
}

// resolve decides on the invoice that the card did not pay: it is given up, while Stripe answers as it likes and the
// server dies, or paid on its page. One that was given up may be paid after all.
func (x *play) resolve() {
	x.T.Helper()
	if x.open != "" && x.r.IntN(3) > 0 {
		x.fake.Faults.Fail(faults[x.r.IntN(len(faults))], faults[x.r.IntN(len(faults))])
		x.must(func() error {
			if err := x.giveUp(x.open); !fault.Is(err, fault.Conflict) { // it was given up, and what died came after
				return err
			}
			return nil
		})
		x.fake.Faults.Heal()
		x.given, x.open = append(x.given, x.open), ""
	} else if x.open != "" {
		x.pays(x.open)
		x.open = ""
	}
	if lost := x.lost(); len(lost) > 0 && x.r.IntN(3) == 0 {
		x.pays(lost[0].ID)
	}
}

func (x *play) pays(invoice string) {
	x.T.Helper()
	if !x.fake.Invoices.PayHere(invoice, "pm_card_visa") {
		x.T.Fatal("the page takes no card")
	}
}

// lost returns the invoices that were given up and Stripe was not paid for.
func (x *play) lost() (out []stripe.Invoice) {
	x.T.Helper()
	for _, i := range x.given {
		in, err := x.fake.Client.Invoice(x.T.Context(), i)
		if err != nil {
			x.T.Fatal(err)
		}
		if in.Status != stripe.InvoicePaid {
			out = append(out, in)
		}
	}
	return out
}

// faults of Stripe's answers.
var faults = []sandbox.Fault{sandbox.None, sandbox.Error500, sandbox.RateLimited, sandbox.Down, sandbox.Truncated,
	sandbox.InUse, sandbox.LostAnswer}

// Whatever is used and given back, however Stripe answers, whichever events are lost, doubled or shuffled, wherever the
// server dies: each month's invoice equals the ledger, to the cent; one that Stripe closed without us is put
// right by the next; and in the end nothing is owed. With taxes, whose rate changes every month, an invoice is that and
// the tax on it, or on what Stripe closed without tax as well. What the card does not pay is paid later, or given up;
// then it is bad debt, and not any more when it is paid after all.
func TestInvoice_EqualsLedger(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		d, k := dbtest.NewMortal(t)
		x := &play{world: newWorld(t, d), r: rand.New(rand.NewPCG(31, seed)), k: k, cluster: id.New[id.Cluster]()}
		x.set(Change{On: true, Limit: 100_000 * money.Unit, Reason: "trusted"})
		x.SendAll(x.p.out)
		var kept []sandbox.Delivery
		for month := range 4 {
			x.resolve()
			x.card([]string{"pm_card_visa", "pm_card_chargeCustomerFail"}[x.r.IntN(2)])
			for range 3 + x.r.IntN(5) {
				x.hour()
				for range x.r.IntN(4) {
					x.fake.Faults.Fail(faults[x.r.IntN(len(faults))])
				}
				x.Exec("UPDATE stripe_outbox SET next_at = clock_timestamp() WHERE state IN ('pending', 'sent', 'unknown')")
				if _, err := x.p.out.SendDue(t.Context()); err != nil {
					t.Fatal(err)
				}
				x.fake.Faults.Heal()
			}
			x.pass(time.Minute)
			before := x.invoices()
			if seed > 0 {
				x.taxes.Flat = tax.Flat{Home: "DE", Rates: map[string]int64{"DE": 190_000 + int64(month)*2_500}}
			}
			draft := x.fake.Billing.EndPeriod(x.customer())[0]
			missed := month == 2 && seed != 1
			if missed { // no event about it arrives within its hour
				x.fake.Billing.HourOver(draft)
			}
			ds := append(x.fake.Webhooks.Deliveries(), kept...)
			ds = append(ds, ds...)
			x.r.Shuffle(len(ds), func(i, j int) { ds[i], ds[j] = ds[j], ds[i] })
			kept = ds[x.r.IntN(len(ds)+1):]
			x.Deliver(x.in, ds[:len(ds)-len(kept)])
			x.settle()
			x.MustBalance()

			in, err := x.fake.Client.Invoice(t.Context(), draft)
			failed := in.Status == stripe.InvoiceOpen && in.Attempts > 0 && in.AmountDue > 0
			if err != nil || in.Status != stripe.InvoicePaid && !failed {
				t.Fatalf("seed %d, month %d: %+v %v", seed, month, in, err)
			}
			if failed {
				x.open = draft
			}
			all := x.invoices()
			if len(all) == len(before) && missed && in.Total == 0 {
				continue // one of nothing
			}
			if len(all) != len(before)+1 {
				t.Fatalf("seed %d, month %d: %d invoices", seed, month, len(all))
			}
			// The ledger at the period's end, by the charges before it.
			var books money.Nano
			if err := d.Pool.QueryRow(t.Context(), "SELECT coalesce(sum(amount), 0) FROM postpaid_charge WHERE org_id = $1 "+
				"AND at < $2", x.org, in.PeriodEnd).Scan(&books); err != nil {
				t.Fatal(err)
			}
			lost := x.lost()
			want, untaxed := int64(books/money.Cent), int64(0)
			for _, i := range before {
				want -= i.Total - i.Tax
				if !slices.ContainsFunc(lost, func(l stripe.Invoice) bool { return l.ID == i.ID && i.TaxBase < i.Total-i.Tax }) {
					// there is nothing to tax
					untaxed += i.Total - i.Tax - i.TaxBase
				}
			}
			if want < 50 {
				want, untaxed = 0, 0
			}
			with := tax.Of(want+untaxed, x.taxes.Rates["DE"])
			if missed {
				with = 0
			}
			if all[0].ID != draft || all[0].Due != want || all[0].Tax != with || taxLine(in) != with || !missed &&
				in.Total != want+with {
				t.Errorf("seed %d, month %d: invoice %+v, its row %+v, want %d cents and %d of tax", seed, month, in, all[0], want,
					with)
			}
			if missed {
				t.Logf("seed %d: closed by Stripe at %d cents, the books say %d", seed, in.Total, want)
			}
			x.even()
		}
		if n, sum := x.fake.Meters.Metered(x.customer()); sum != int64(x.billed/1000) {
			t.Errorf("seed %d: Stripe counts %d micro-units in %d events, %d were billed", seed, sum, n, x.billed)
		}

		x.resolve()
		x.card("pm_card_visa")

		// Switched off: what is held is used or given back, a last invoice comes, and nothing is owed.
		x.must(func() error {
			return billingtest.Err(x.p.Set(t.Context(), x.boss, x.org, Change{Reason: "over"}, idem.Request{}))
		})
		if x.held > 0 {
			if err := x.Post("hold_release", ledger.Transfer{
				Debit:  x.hold(),
				Credit: ledger.Wallet(x.org, eur),
				Amount: x.held,
			}); err != nil {
				t.Fatal(err)
			}
			x.held = 0
		}
		x.pass(time.Hour)
		x.must(x.charge)
		x.settle()
		for _, i := range x.invoices() {
			if in, err := x.fake.Client.Invoice(t.Context(), i.ID); err != nil {
				t.Fatal(err)
			} else if in.Status == stripe.InvoiceOpen { // Stripe closed the last one without us, and charged the card before
				x.pays(i.ID)
			}
		}
		if _, err := x.rec.Reconcile(t.Context()); err != nil {
			// an org that Stripe no longer bills is not polled: the balance shows it
			t.Fatal(err)
		}
		var total int64
		for _, i := range x.invoices() {
			total += i.Total - i.Tax
		}
		if rest := int64(x.billed/money.Cent) - total; x.terms().State != Off || rest < 0 || rest >= leastCents ||
			x.Balance(ledger.Receivable(x.org, eur)) != 0 {
			t.Errorf("seed %d: %+v, billed %s, invoiced %d cents, owed %s", seed, x.terms(), x.billed, total,
				-x.Balance(ledger.Receivable(x.org, eur)))
		}
		x.Deliver(x.in, kept) // after all
		x.even()
		x.MustBalance()
	}
}

// even asserts that the ledger agrees with the test on the org's debt and with Stripe on its balance.
func (x *play) even() {
	x.T.Helper()
	if _, err := x.rec.Reconcile(x.T.Context()); err != nil {
		x.T.Fatal(err)
	}
	if got, want := -x.Balance(ledger.StripeClearing(eur)),
		money.Nano(x.fake.Balance.Cents("eur"))*money.Cent; got != want {
		x.T.Errorf("clearing %s, Stripe has %s", got, want)
	}
	var charged, paid, taxed money.Nano
	if err := x.DB.Pool.QueryRow(x.T.Context(), "SELECT (SELECT coalesce(sum(amount), 0) FROM postpaid_charge WHERE "+
		"org_id = $1), (SELECT coalesce(sum(paid), 0) * 10000000 FROM postpaid_invoice WHERE org_id = $1), (SELECT "+
		"coalesce(sum(tax), 0) * 10000000 FROM postpaid_invoice WHERE org_id = $1)", x.org).Scan(&charged, &paid,
		&taxed); err != nil {
		x.T.Fatal(err)
	}
	var lost, untaxed money.Nano
	for _, in := range x.lost() {
		lost, untaxed = lost+money.Nano(in.AmountDue)*money.Cent, untaxed+money.Nano(taxLine(in))*money.Cent
	}
	if bad, told := -x.Balance(ledger.BadDebt(eur)), x.terms().WrittenOff; bad != lost-untaxed || told != lost {
		x.T.Errorf("bad debt %s, given up %s, %s of it tax; the org is told %s", bad, lost, untaxed, told)
	}
	if now := x.terms(); lost > 0 && now.Left > max(0, x.Balance(ledger.Wallet(x.org, eur))) {
		x.T.Errorf("%s of it are not paid, and it is lent: %+v", lost, now)
	}
	if charged != x.billed {
		x.T.Errorf("charged %s, want %s", charged, x.billed)
	}
	if owed := -x.Balance(ledger.Receivable(x.org, eur)); owed != charged+taxed-paid-lost && x.terms().State != Off {
		x.T.Errorf("owed %s, charged %s, tax %s, paid %s, given up %s", owed, charged, taxed, paid, lost)
	}
	if r, err := tax.ReportOf(x.T.Context(), x.DB.Q, eur, time.Now().UTC().Format("2006")); err != nil ||
		r.Book != taxed-untaxed || r.Payable != taxed-untaxed {
		x.T.Errorf("tax of the invoices %s, %s of it given up, of the report %+v %v", taxed, untaxed, r, err)
	}
}
