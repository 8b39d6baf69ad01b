package payment

import (
	"context"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// office is a Taxer whose rules a test changes.
type office struct {
	tax.Flat
	away error
}

func (o *office) Tax(ctx context.Context, s tax.Sale) (tax.Tax, error) {
	if o.away != nil {
		return tax.Tax{}, o.away
	}
	return o.Flat.Tax(ctx, s)
}

// taxed returns a shop in Germany that charges the EU's rates.
func taxed(t testing.TB, method string) (*shop, *office) {
	s := newShop(t, method)
	o := &office{Flat: tax.Flat{Home: "DE", Rates: tax.EU()}}
	s.p.core.cfg.Taxer = o
	return s, o
}

func (s *shop) lives(country, vat string) {
	s.T.Helper()
	if country == "" {
		s.Exec("DELETE FROM org_legal WHERE org_id = $1", s.payer.Org)
		return
	}
	s.Exec(`INSERT INTO org_legal (org_id, name, address, country, vat_id) VALUES ($1, 'A', '{b}', $2, $3)
		ON CONFLICT (org_id) DO UPDATE SET country = excluded.country, vat_id = excluded.vat_id`, s.payer.Org, country, vat)
}

// owed returns the tax by the ledger, asserted to be the tax book's sum and what the payments, refunds and disputes
// say.
func (s *shop) owed() money.Nano {
	s.T.Helper()
	n := s.balanceOf(ledger.TaxPayable("EUR"))
	var book, documents money.Nano
	if err := s.DB.Pool.QueryRow(context.Background(), `SELECT coalesce(sum(tax), 0)::bigint,
		((SELECT coalesce(sum(tax), 0) FROM topup WHERE state = 'succeeded') - (SELECT coalesce(sum(tax), 0) FROM refund
		WHERE state <> 'failed')
		- (SELECT coalesce(sum(tax), 0) FROM dispute WHERE state = 'lost'))::bigint FROM
		tax_entry`).Scan(&book, &documents); err != nil {
		s.T.Fatal(err)
	}
	if n != book || n != documents {
		s.T.Fatalf("tax_payable is %s, the tax book says %s, the documents %s", n, book, documents)
	}
	return n
}

func TestTax_TopUp(t *testing.T) {
	t.Parallel()
	s, o := taxed(t, "pm_card_visa")
	price, err := s.p.Taxes.Price(t.Context(), s.payer.Org, 100*money.Unit)
	if err != nil || price.Total != 119*money.Unit || price.Tax.Percent != "19" || price.Tax.Reason != tax.Untold ||
		price.Tax.Note == "" {
		t.Fatalf("%+v %v", price, err)
	}
	s.lives("DE", "")
	top := s.topUp(100 * money.Unit)
	if top.State != Succeeded || top.Amount != 100*money.Unit || top.Tax.Amount != 19*money.Unit ||
		top.Total != 119*money.Unit || top.Tax.Name != "VAT" {
		t.Fatalf("%+v", top)
	}
	if n, cents := s.stripe.Charges.Total(); n != 1 || cents != 11900 || s.wallet() != 100*money.Unit ||
		s.owed() != 19*money.Unit {
		t.Fatalf("%d charges, %d cents, wallet %s, tax %s", n, cents, s.wallet(), s.owed())
	}
	var told string
	if err := s.DB.Pool.QueryRow(t.Context(), "SELECT params->>'description' FROM stripe_outbox WHERE idem_key = $1",
		topupKey(top.ID)).Scan(&told); err != nil ||
		told != "Muster credit 100.00 EUR, plus VAT 19 % 19.00 EUR" {
		t.Fatal(told, err)
	}
	// A payer who saw a different total is not charged.
	o.Rates = map[string]int64{"DE": 160_000}
	if _, _, err := s.p.TopUps.Create(t.Context(), s.payer, TopUpRequest{
		Amount: 100 * money.Unit,
		Total:  119 * money.Unit,
	}, idem.Request{}); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "116.00") {
		t.Fatal(err)
	}
	if got, _, err := s.p.TopUps.Create(t.Context(), s.payer, TopUpRequest{
		Amount: 100 * money.Unit,
		Total:  116 * money.Unit,
	}, idem.Request{}); err != nil || got.Tax.Percent != "16" {
		t.Fatalf("%+v %v", got, err)
	}
	// A business elsewhere in the EU.
	s.lives("FR", "FR12345678901")
	top = s.topUp(50 * money.Unit)
	if top.Total != 50*money.Unit || top.Tax.Reason != tax.ReverseCharge ||
		!strings.Contains(top.Tax.Note, "Reverse charge") || top.Tax.Percent != "0" {
		t.Fatalf("%+v", top)
	}
	// The tax cannot be determined: nothing is charged.
	o.away = context.DeadlineExceeded
	_, _, err = s.p.TopUps.Create(t.Context(), s.payer, TopUpRequest{Amount: money.Unit}, idem.Request{})
	if !fault.Is(err, fault.Unavailable) {
		t.Fatal(err)
	}
	if n, _ := s.stripe.Charges.Total(); n != 3 || s.owed() != 35*money.Unit {
		t.Fatal(n, s.owed())
	}
	s.level()
}

// A payment under way keeps its tax, whatever changes before it settles, even if it was given up before.
func TestTax_FrozenWhilePending(t *testing.T) {
	t.Parallel()
	s, o := taxed(t, "pm_slow")
	s.lives("DE", "")
	first, late := s.topUp(10*money.Unit), s.topUp(20*money.Unit)
	s.want(first, Pending)
	o.Rates["DE"] = 250_000
	s.lives("US", "")
	s.Exec("UPDATE topup SET state = 'failed' WHERE id = $1", late.ID)
	for _, x := range []TopUp{first, late} {
		s.stripe.Payments.Finish(s.session(topupKey(x.ID)), true)
	}
	s.deliver(s.stripe.Webhooks.Deliveries())
	for x, want := range map[id.TopUp]money.Nano{first.ID: 190 * money.Cent, late.ID: 380 * money.Cent} {
		if got := s.want(TopUp{ID: x}, Succeeded); got.Tax.Amount != want || got.Tax.Country != "DE" ||
			got.Tax.Percent != "19" {
			t.Errorf("%+v", got.Tax)
		}
	}
	if s.wallet() != 30*money.Unit || s.owed() != 570*money.Cent {
		t.Fatal(s.wallet(), s.owed())
	}
	s.level()
}

func TestTax_Refund(t *testing.T) {
	t.Parallel()
	s, o := taxed(t, "pm_card_visa")
	s.lives("DE", "")
	s.topUp(10*money.Unit + 3*money.Cent) // 1.91 tax
	o.Rates = nil                         // what was charged goes back, not what would be charged now
	var net, back money.Nano
	for _, part := range []money.Nano{1, 2, 333, 1, 666} {
		list, err := s.giveBack(part * money.Cent)
		if err != nil || len(list) != 1 || list[0].State != Succeeded || list[0].Total != list[0].Amount+list[0].Tax {
			t.Fatalf("%+v %v", list, err)
		}
		net, back = net+list[0].Amount, back+list[0].Tax
		if want := 191 * (net / money.Cent) / 1003 * money.Cent; back != want {
			t.Errorf("%s is back, with %s tax, want %s", net, back, want)
		}
	}
	if net != 10*money.Unit+3*money.Cent || back != 191*money.Cent || s.owed() != 0 || s.wallet() != 0 {
		t.Fatal(net, back, s.owed(), s.wallet())
	}
	s.level()
	// One that a bank sends back brings its tax back too.
	s.stripe.Refunds.Fail(s.stripe.Refunds.IDs()[2])
	s.deliver(s.stripe.Webhooks.Deliveries())
	if s.wallet() != 333*money.Cent || s.owed() != 63*money.Cent {
		t.Fatal(s.wallet(), s.owed())
	}
	s.level()
	if _, err := s.giveBack(333 * money.Cent); err != nil || s.owed() != 0 {
		t.Fatal(err, s.owed())
	}
	s.level()
}

// A lost dispute takes its tax along: what was spent of the credit is bad debt, the tax on it is not.
func TestTax_Dispute(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spent        money.Nano
		cents        int64
		won          bool
		wallet, owed money.Nano
		bad          money.Nano
	}{
		"won":               {4 * money.Unit, 1190, true, 6 * money.Unit, 190 * money.Cent, 0},
		"lost, some spent":  {4 * money.Unit, 1190, false, 0, 0, 4 * money.Unit},
		"lost, none spent":  {0, 1190, false, 0, 0, 0},
		"a third of it":     {0, 397, false, 10*money.Unit - 334*money.Cent, 127 * money.Cent, 0},
		"a cent, all spent": {10 * money.Unit, 1, false, 0, 190 * money.Cent, money.Cent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := taxed(t, "pm_card_visa")
			s.lives("DE", "")
			top := s.topUp(10 * money.Unit)
			if c.spent > 0 {
				s.spend(c.spent)
			}
			dp := s.stripe.Disputes.Open(s.session(topupKey(top.ID)), c.cents)
			s.deliver(s.stripe.Webhooks.Deliveries())
			if s.owed() != 190*money.Cent {
				t.Errorf("open: %s", s.owed())
			}
			s.stripe.Disputes.Decide(dp, c.won)
			ds := s.stripe.Webhooks.Deliveries()
			s.deliver(append(ds, ds...))
			if s.wallet() != c.wallet || s.owed() != c.owed || -s.balanceOf(ledger.BadDebt("EUR")) != c.bad ||
				s.balanceOf(ledger.DisputeHold(s.payer.Org, "EUR")) != 0 {
				t.Errorf("wallet %s, tax %s, bad debt %s, set aside %s", s.wallet(), s.owed(), -s.balanceOf(ledger.BadDebt("EUR")),
					s.balanceOf(ledger.DisputeHold(s.payer.Org, "EUR")))
			}
			s.level()
		})
	}
}

// The cap of a day counts what is added, not the tax on it.
func TestTax_AutoTopUp(t *testing.T) {
	t.Parallel()
	s, o := taxed(t, "pm_card_visa")
	s.Exec("INSERT INTO app_user (id, email, password_hash) VALUES ($1, $2, 'x')", s.payer.User, s.payer.User.String()+
		"@example.com")
	if err := s.p.AutoTopUps.Set(t.Context(), s.payer, AutoTopUp{
		Enabled:   true,
		Threshold: 100 * money.Unit,
		Amount:    10 * money.Unit,
		DailyCap:  20 * money.Unit,
	}); err != nil {
		t.Fatal(err)
	}
	o.away = context.DeadlineExceeded
	if n, err := s.p.AutoTopUps.Run(t.Context()); n != 0 || err == nil {
		t.Fatal(n, err)
	}
	o.away = nil
	s.Exec("UPDATE auto_topup SET next_at = clock_timestamp()") // it is retried after a while
	for range 4 {
		if _, err := s.p.AutoTopUps.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n, cents := s.stripe.Charges.Total(); n != 2 || cents != 2380 || s.wallet() != 20*money.Unit ||
		s.owed() != 380*money.Cent {
		t.Fatal(n, cents, s.wallet(), s.owed())
	}
	s.level()
}
