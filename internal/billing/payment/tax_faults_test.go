package payment

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe/sandbox"
)

// Random payments, refunds and disputes, under random faults, with webhooks shuffled, repeated and lost, while rates,
// the buyer's country and VAT id change: the ledger balance after every step; tax_payable is what was charged less what
// was given back; each payment is charged the tax of the rules at its making, and gives no more of it back than that;
// in the end Stripe's balance equals the ledger's, to the cent.
func TestTax_RandomFaults(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s, o := taxed(t, "pm_card_visa")
			r := rand.New(rand.NewPCG(seed, 19))
			m := taxModel{shop: s, o: o, r: r, due: map[id.TopUp]int64{}}
			s.topUp(5 * money.Unit)
			kinds := []sandbox.Fault{sandbox.None, sandbox.None, sandbox.None, sandbox.LostAnswer, sandbox.Error500,
				sandbox.RateLimited,
				sandbox.Truncated, sandbox.InUse, sandbox.Down}
			for range 40 {
				s.stripe.Faults.Fail(kinds[r.IntN(len(kinds))])
			}
			for range 40 {
				m.step()
				m.receive()
				s.Exec("UPDATE payment_standing SET state = 'ok'") // what disputes forbid is tested elsewhere
				if b, err := ledger.Check(t.Context(), s.DB); err != nil || !b.Balanced() {
					t.Fatal(b.Problems, err)
				}
				s.owed()
			}
			s.stripe.Faults.Heal()
			s.SendAll(s.p.core.out)
			m.finishAll()
			if _, err := s.p.TopUps.poll(t.Context(), 0); err != nil {
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
	m.T.Helper()
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
		m.p.core.cfg.DefaultMethod = []string{"pm_card_visa", "pm_card_visa", "pm_slow",
			"pm_card_visa_chargeDeclined"}[m.r.IntN(4)]
		cents := 100 + m.r.Int64N(3000)
		m.due[m.topUp(money.Nano(cents)*money.Cent).ID] = m.expected(cents)
	case 5:
		if n, err := m.p.Refunds.Refundable(context.Background(), m.payer.Org); err != nil {
			m.T.Fatal(err)
		} else if n >= money.Cent {
			if _, err := m.giveBack(money.Nano(1+m.r.Int64N(int64(n/money.Cent))) * money.Cent); err != nil {
				m.T.Fatal(err)
			}
		}
	case 6:
		list, err := m.p.TopUps.List(context.Background(), m.payer.Org, id.TopUp{}, 100)
		if err != nil {
			m.T.Fatal(err)
		}
		if top := list[m.r.IntN(len(list))]; top.State == Succeeded {
			cents := int64(top.Total / money.Cent)
			if m.r.IntN(2) == 0 {
				cents = 1 + m.r.Int64N(cents)
			}
			if dp := m.stripe.Disputes.Open(m.session(topupKey(top.ID)), cents); dp != "" && m.r.IntN(3) > 0 {
				m.stripe.Disputes.Decide(dp, m.r.IntN(2) == 0)
			}
		}
	case 7:
		if all := m.stripe.Refunds.IDs(); len(all) > 0 {
			m.stripe.Refunds.Fail(all[m.r.IntN(len(all))])
		}
	case 8:
		if w := m.spendable(); w > money.Unit {
			m.spend(money.Nano(m.r.Int64N(int64(w/2))) + 1)
		}
		m.finishAll()
	}
}

// expected returns the tax in cents on a payment made now.
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

// receive delivers Stripe's events, shuffled, repeated or partly lost.
func (m *taxModel) receive() {
	m.T.Helper()
	ds := m.stripe.Webhooks.Deliveries()
	if m.r.IntN(3) > 0 {
		ds = append(ds, ds...)
	}
	m.r.Shuffle(len(ds), func(i, j int) { ds[i], ds[j] = ds[j], ds[i] })
	m.deliver(ds[:m.r.IntN(len(ds)+1)])
}

// finishAll lets pending banks answer, mostly with a yes.
func (m *taxModel) finishAll() {
	m.T.Helper()
	rows, err := m.DB.Pool.Query(context.Background(), "SELECT payment_intent_id FROM topup WHERE state = 'pending' AND "+
		"payment_intent_id IS NOT NULL")
	if err != nil {
		m.T.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var pi string
		if err := rows.Scan(&pi); err != nil {
			m.T.Fatal(err)
		}
		m.stripe.Payments.Finish(pi, m.r.IntN(4) > 0)
	}
}

func (m *taxModel) check() {
	m.T.Helper()
	var charged int64
	list, err := m.p.TopUps.List(context.Background(), m.payer.Org, id.TopUp{}, 1000)
	if err != nil {
		m.T.Fatal(err)
	}
	for _, top := range list {
		if want, known := m.due[top.ID]; known && top.Tax.Amount != money.Nano(want)*money.Cent {
			m.T.Errorf("%s of %s is taxed %s, want %d cents", top.ID, top.Amount, top.Tax.Amount, want)
		}
		if top.State == Pending {
			m.T.Errorf("%s is still pending", top.ID)
		}
		if top.State == Succeeded {
			charged += int64(top.Total / money.Cent)
		}
	}
	if _, cents := m.stripe.Charges.Total(); cents != charged {
		m.T.Errorf("charged %d cents, payments say %d", cents, charged)
	}
	var over string
	if err := m.DB.Pool.QueryRow(context.Background(), `SELECT coalesce(string_agg(concat_ws(' ', t.amount, t.tax,
		r.amount, r.tax, d.amount, d.tax), E'\n'), '') FROM topup t,
		LATERAL (SELECT coalesce(sum(amount), 0) AS amount, coalesce(sum(tax), 0) AS tax FROM refund WHERE topup_id = t.id
		AND state <> 'failed') r,
		LATERAL (SELECT coalesce(sum(amount - tax), 0) AS amount, coalesce(sum(tax), 0) AS tax FROM dispute WHERE topup_id =
		t.id AND state = 'lost') d
		WHERE r.tax + d.tax > t.tax OR r.amount + d.amount > t.amount
		   OR r.amount + r.tax + d.amount + d.tax = t.amount + t.tax AND r.tax + d.tax <> t.tax
		   OR abs((r.tax + d.tax) * (t.amount + t.tax) - t.tax * (r.amount + r.tax + d.amount + d.tax)) > 20000000 *
		(t.amount + t.tax)`).Scan(&over); err != nil || over != "" {
		m.T.Errorf("payments gave back more than they brought, or not all of their tax (amount and tax paid, refunded, "+
			"disputed): %v\n%s", err, over)
	}
}
