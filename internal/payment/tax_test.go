package payment

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/ledger"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripetest"
	"github.com/musterhq/muster/internal/tax"
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

// taxed is a shop in Germany that charges the EU's rates.
func taxed(t testing.TB, method string) (*shop, *office) {
	s := newShop(t, method)
	o := &office{Flat: tax.Flat{Home: "DE", Rates: tax.EU()}}
	s.p.cfg.Taxer = o
	return s, o
}

func (s *shop) lives(country, vat string) {
	s.t.Helper()
	if country == "" {
		s.exec("DELETE FROM org_legal WHERE org_id = $1", s.payer.Org)
		return
	}
	s.exec(`INSERT INTO org_legal (org_id, name, address, country, vat_id) VALUES ($1, 'A', '{b}', $2, $3)
		ON CONFLICT (org_id) DO UPDATE SET country = excluded.country, vat_id = excluded.vat_id`, s.payer.Org, country, vat)
}

// owed is the tax by the books, asserted to be the tax book's sum and what the payments, refunds and disputes say.
func (s *shop) owed() money.Nano {
	s.t.Helper()
	n := s.balanceOf(ledger.TaxPayable("EUR"))
	var book, documents money.Nano
	if err := s.d.Pool.QueryRow(context.Background(), `SELECT coalesce(sum(tax), 0)::bigint,
		((SELECT coalesce(sum(tax), 0) FROM topup WHERE state = 'succeeded') - (SELECT coalesce(sum(tax), 0) FROM refund WHERE state <> 'failed')
		- (SELECT coalesce(sum(tax), 0) FROM dispute WHERE state = 'lost'))::bigint FROM tax_entry`).Scan(&book, &documents); err != nil {
		s.t.Fatal(err)
	}
	if n != book || n != documents {
		s.t.Fatalf("tax_payable is %s, the tax book says %s, the documents %s", n, book, documents)
	}
	return n
}

func TestATopUpIsChargedWithItsTax(t *testing.T) {
	t.Parallel()
	s, o := taxed(t, "pm_card_visa")
	price, err := s.p.Price(t.Context(), s.payer.Org, 100*money.Unit)
	if err != nil || price.Total != 119*money.Unit || price.Tax.Percent != "19" || price.Tax.Reason != tax.Untold || price.Tax.Note == "" {
		t.Fatalf("%+v %v", price, err)
	}
	s.lives("DE", "")
	top := s.topUp(100 * money.Unit)
	if top.State != Succeeded || top.Amount != 100*money.Unit || top.Tax.Amount != 19*money.Unit || top.Total != 119*money.Unit || top.Tax.Name != "VAT" {
		t.Fatalf("%+v", top)
	}
	if n, cents := s.stripe.Charged(); n != 1 || cents != 11900 || s.wallet() != 100*money.Unit || s.owed() != 19*money.Unit {
		t.Fatalf("%d charges, %d cents, wallet %s, tax %s", n, cents, s.wallet(), s.owed())
	}
	var told string
	if err := s.d.Pool.QueryRow(t.Context(), "SELECT params->>'description' FROM stripe_outbox WHERE idem_key = $1", topupKey(top.ID)).Scan(&told); err != nil ||
		told != "Muster credit 100.00 EUR, plus VAT 19 % 19.00 EUR" {
		t.Fatal(told, err)
	}
	// Whoever was told another total is not charged.
	o.Rates = map[string]int64{"DE": 160_000}
	if _, err := s.p.TopUp(t.Context(), s.payer, TopUpRequest{Amount: 100 * money.Unit, Total: 119 * money.Unit}, idem.Request{}); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "116.00") {
		t.Fatal(err)
	}
	if got, err := s.p.TopUp(t.Context(), s.payer, TopUpRequest{Amount: 100 * money.Unit, Total: 116 * money.Unit}, idem.Request{}); err != nil || got.Tax.Percent != "16" {
		t.Fatalf("%+v %v", got, err)
	}
	// A business elsewhere in the EU.
	s.lives("FR", "FR12345678901")
	top = s.topUp(50 * money.Unit)
	if top.Total != 50*money.Unit || top.Tax.Reason != tax.ReverseCharge || !strings.Contains(top.Tax.Note, "Reverse charge") || top.Tax.Percent != "0" {
		t.Fatalf("%+v", top)
	}
	// Nobody can say what the tax is: nothing is charged.
	o.away = context.DeadlineExceeded
	if _, err := s.p.TopUp(t.Context(), s.payer, TopUpRequest{Amount: money.Unit}, idem.Request{}); !fault.Is(err, fault.Unavailable) {
		t.Fatal(err)
	}
	if n, _ := s.stripe.Charged(); n != 3 || s.owed() != 35*money.Unit {
		t.Fatal(n, s.owed())
	}
	s.level()
}

// A payment under way keeps its tax, whatever changes before it settles, even if it was given up before.
func TestTheTaxOfAPaymentUnderWayIsFrozen(t *testing.T) {
	t.Parallel()
	s, o := taxed(t, "pm_slow")
	s.lives("DE", "")
	first, late := s.topUp(10*money.Unit), s.topUp(20*money.Unit)
	s.want(first, Pending)
	o.Rates["DE"] = 250_000
	s.lives("US", "")
	s.exec("UPDATE topup SET state = 'failed' WHERE id = $1", late.ID)
	for _, x := range []TopUp{first, late} {
		s.stripe.Finish(s.session(topupKey(x.ID)), true)
	}
	s.deliver(s.stripe.Deliveries())
	for x, want := range map[id.TopUp]money.Nano{first.ID: 190 * money.Cent, late.ID: 380 * money.Cent} {
		if got := s.want(TopUp{ID: x}, Succeeded); got.Tax.Amount != want || got.Tax.Country != "DE" || got.Tax.Percent != "19" {
			t.Errorf("%+v", got.Tax)
		}
	}
	if s.wallet() != 30*money.Unit || s.owed() != 570*money.Cent {
		t.Fatal(s.wallet(), s.owed())
	}
	s.level()
}

func TestARefundTakesItsTaxAlong(t *testing.T) {
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
	s.stripe.FailRefund(s.stripe.Refunds()[2])
	s.deliver(s.stripe.Deliveries())
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
func TestADisputeAndItsTax(t *testing.T) {
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
			dp := s.stripe.Dispute(s.session(topupKey(top.ID)), c.cents)
			s.deliver(s.stripe.Deliveries())
			if s.owed() != 190*money.Cent {
				t.Errorf("open: %s", s.owed())
			}
			s.stripe.Decide(dp, c.won)
			ds := s.stripe.Deliveries()
			s.deliver(append(ds, ds...))
			if s.wallet() != c.wallet || s.owed() != c.owed || -s.balanceOf(ledger.BadDebt("EUR")) != c.bad || s.balanceOf(ledger.DisputeHold(s.payer.Org, "EUR")) != 0 {
				t.Errorf("wallet %s, tax %s, bad debt %s, set aside %s", s.wallet(), s.owed(), -s.balanceOf(ledger.BadDebt("EUR")), s.balanceOf(ledger.DisputeHold(s.payer.Org, "EUR")))
			}
			s.level()
		})
	}
}

// The cap of a day counts what is added, not the tax on it.
func TestAutoTopUpPaysItsTax(t *testing.T) {
	t.Parallel()
	s, o := taxed(t, "pm_card_visa")
	s.exec("INSERT INTO app_user (id, email, password_hash) VALUES ($1, $2, 'x')", s.payer.User, s.payer.User.String()+"@example.com")
	if err := s.p.SetAutoTopUp(t.Context(), s.payer, AutoTopUp{Enabled: true, Threshold: 100 * money.Unit, Amount: 10 * money.Unit, DailyCap: 20 * money.Unit}); err != nil {
		t.Fatal(err)
	}
	o.away = context.DeadlineExceeded
	if n, err := s.p.AutoTopUps(t.Context()); n != 0 || err == nil {
		t.Fatal(n, err)
	}
	o.away = nil
	for range 4 {
		if _, err := s.p.AutoTopUps(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n, cents := s.stripe.Charged(); n != 2 || cents != 2380 || s.wallet() != 20*money.Unit || s.owed() != 380*money.Cent {
		t.Fatal(n, cents, s.wallet(), s.owed())
	}
	s.level()
}

// Random payments, refunds and disputes, under random faults, with webhooks shuffled, repeated and lost, while rates, the
// buyer's country and VAT id change: the books balance after every step; tax_payable is what was charged less what was
// given back; each payment is charged the tax of the rules at its making, and gives no more of it back than that; in the
// end Stripe holds what the books say, to the cent.
func TestTaxUnderFaults(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s, o := taxed(t, "pm_card_visa")
			r := rand.New(rand.NewPCG(seed, 19))
			m := taxModel{shop: s, o: o, r: r, due: map[id.TopUp]int64{}}
			s.topUp(5 * money.Unit)
			kinds := []stripetest.Fault{stripetest.None, stripetest.None, stripetest.None, stripetest.LostAnswer, stripetest.Error500, stripetest.RateLimited,
				stripetest.Truncated, stripetest.InUse, stripetest.Down}
			for range 40 {
				s.stripe.Fail(kinds[r.IntN(len(kinds))])
			}
			for range 40 {
				m.step()
				m.hear()
				if b, err := ledger.Check(t.Context(), s.d); err != nil || !b.Balanced() {
					t.Fatal(b.Problems, err)
				}
				s.owed()
			}
			s.stripe.Heal()
			s.sendAll()
			m.finishAll()
			if _, err := s.p.poll(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			s.level()
			s.owed()
			m.check()
		})
	}
}

// taxModel knows what each payment has to be charged, by arithmetic of its own.
type taxModel struct {
	*shop
	o            *office
	r            *rand.Rand
	country, vat string
	due          map[id.TopUp]int64 // tax in cents
}

func (m *taxModel) step() {
	m.t.Helper()
	switch m.r.IntN(9) {
	case 0: // another law
		m.o.Rates = tax.EU()
		m.o.Rates["DE"] = m.r.Int64N(400_000)
	case 1: // another address
		m.country = []string{"DE", "FR", "US", ""}[m.r.IntN(4)]
		m.vat = map[string]string{"DE": "DE123456789", "FR": "FR12345678901", "US": "12345"}[m.country]
		if m.r.IntN(2) == 0 {
			m.vat = ""
		}
		m.lives(m.country, m.vat)
	case 2, 3, 4:
		m.p.cfg.DefaultMethod = []string{"pm_card_visa", "pm_card_visa", "pm_slow", "pm_card_visa_chargeDeclined"}[m.r.IntN(4)]
		cents := 100 + m.r.Int64N(3000)
		m.due[m.topUp(money.Nano(cents)*money.Cent).ID] = m.expected(cents)
	case 5:
		if n, err := m.p.Refundable(context.Background(), m.payer.Org); err != nil {
			m.t.Fatal(err)
		} else if n >= money.Cent {
			if _, err := m.giveBack(money.Nano(1+m.r.Int64N(int64(n/money.Cent))) * money.Cent); err != nil {
				m.t.Fatal(err)
			}
		}
	case 6:
		list, err := m.p.List(context.Background(), m.payer.Org, id.TopUp{}, 100)
		if err != nil {
			m.t.Fatal(err)
		}
		if top := list[m.r.IntN(len(list))]; top.State == Succeeded {
			cents := int64(top.Total / money.Cent)
			if m.r.IntN(2) == 0 {
				cents = 1 + m.r.Int64N(cents)
			}
			if dp := m.stripe.Dispute(m.session(topupKey(top.ID)), cents); dp != "" && m.r.IntN(3) > 0 {
				m.stripe.Decide(dp, m.r.IntN(2) == 0)
			}
		}
	case 7:
		if all := m.stripe.Refunds(); len(all) > 0 {
			m.stripe.FailRefund(all[m.r.IntN(len(all))])
		}
	case 8:
		if w := m.wallet(); w > money.Unit {
			m.spend(money.Nano(m.r.Int64N(int64(w/2))) + 1)
		}
		m.finishAll()
	}
}

// expected is the tax in cents on a payment made now.
func (m *taxModel) expected(cents int64) int64 {
	rate := int64(0)
	switch {
	case m.country == "DE" || m.country == "":
		rate = m.o.Rates["DE"]
	case m.country == "FR" && m.vat == "":
		rate = 200_000
	}
	exact := new(big.Rat).Mul(big.NewRat(cents, 1), big.NewRat(rate, 1_000_000))
	exact.Add(exact, big.NewRat(1, 2))
	return new(big.Int).Quo(exact.Num(), exact.Denom()).Int64()
}

// hear delivers what Stripe tells, shuffled, repeated or in part lost.
func (m *taxModel) hear() {
	m.t.Helper()
	ds := m.stripe.Deliveries()
	if m.r.IntN(3) > 0 {
		ds = append(ds, ds...)
	}
	m.r.Shuffle(len(ds), func(i, j int) { ds[i], ds[j] = ds[j], ds[i] })
	m.deliver(ds[:m.r.IntN(len(ds)+1)])
}

// finishAll lets banks that took their time say yes, most often.
func (m *taxModel) finishAll() {
	m.t.Helper()
	rows, err := m.d.Pool.Query(context.Background(), "SELECT payment_intent_id FROM topup WHERE state = 'pending' AND payment_intent_id IS NOT NULL")
	if err != nil {
		m.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var pi string
		if err := rows.Scan(&pi); err != nil {
			m.t.Fatal(err)
		}
		m.stripe.Finish(pi, m.r.IntN(4) > 0)
	}
}

func (m *taxModel) check() {
	m.t.Helper()
	var charged int64
	list, err := m.p.List(context.Background(), m.payer.Org, id.TopUp{}, 1000)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, top := range list {
		if want, known := m.due[top.ID]; known && top.Tax.Amount != money.Nano(want)*money.Cent {
			m.t.Errorf("%s of %s is taxed %s, want %d cents", top.ID, top.Amount, top.Tax.Amount, want)
		}
		if top.State == Pending {
			m.t.Errorf("%s is still pending", top.ID)
		}
		if top.State == Succeeded {
			charged += int64(top.Total / money.Cent)
		}
	}
	if _, cents := m.stripe.Charged(); cents != charged {
		m.t.Errorf("charged %d cents, payments say %d", cents, charged)
	}
	var over string
	if err := m.d.Pool.QueryRow(context.Background(), `SELECT coalesce(string_agg(concat_ws(' ', t.amount, t.tax, r.amount, r.tax, d.amount, d.tax), E'\n'), '') FROM topup t,
		LATERAL (SELECT coalesce(sum(amount), 0) AS amount, coalesce(sum(tax), 0) AS tax FROM refund WHERE topup_id = t.id AND state <> 'failed') r,
		LATERAL (SELECT coalesce(sum(amount - tax), 0) AS amount, coalesce(sum(tax), 0) AS tax FROM dispute WHERE topup_id = t.id AND state = 'lost') d
		WHERE r.tax + d.tax > t.tax OR r.amount + d.amount > t.amount
		   OR r.amount + r.tax + d.amount + d.tax = t.amount + t.tax AND r.tax + d.tax <> t.tax
		   OR abs((r.tax + d.tax) * (t.amount + t.tax) - t.tax * (r.amount + r.tax + d.amount + d.tax)) > 20000000 * (t.amount + t.tax)`).Scan(&over); err != nil || over != "" {
		m.t.Errorf("payments gave back more than they brought, or not all of their tax (amount and tax paid, refunded, disputed): %v\n%s", err, over)
	}
}
