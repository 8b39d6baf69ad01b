package payout

import (
	"testing"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// offers makes an org offer H100s at a price.
func (x *admin) offers(org id.Org, gpus int, price money.Micro) {
	x.T.Helper()
	h := id.New[id.Host]()
	x.Exec("INSERT INTO host (id, org_id, name, region, state) VALUES ($1, $2, $3, 'eu', 'active')", h, org, h.String())
	for n := range gpus {
		x.Exec("INSERT INTO gpu (id, host_id, uuid, idx, model, vram_mb) VALUES ($1, $2, $3, $4, 'H100', 80000)",
			id.New[id.GPU](), h, id.New[id.GPU]().String(), n)
	}
	x.Exec("INSERT INTO offer (id, host_id, gpu_model, price, host_share_ppm) VALUES ($1, $2, 'H100', $3, 850000)",
		id.New[id.Offer](), h, price)
}

// keepAll makes an operator keep all that matures as bond, and lists its GPU at a price that lets the bond grow.
func (x *admin) keepAll() {
	x.T.Helper()
	x.offers(x.operator, 1, 10_000_000_000)
	x.Exec("INSERT INTO bond_terms (org_id, retain_ppm) VALUES ($1, 1000000)", x.operator)
}

// An operator that lists its GPU at a price of its own choice keeps no more as bond than what ten hours of that GPU
// cost where it is cheapest.
func TestRetain_OwnPriceDoesNotDecide(t *testing.T) {
	t.Parallel()
	x := funded(t, 1000*money.Unit)
	x.keepAll()
	x.offers(x.Org(), 1, 3_000_000)
	x.offers(x.Org(), 1, 2_000_000)
	x.earn(100 * money.Unit)
	x.payable()
	if kept := x.Balance(ledger.HostBond(x.operator, eur)); kept != 20*money.Unit {
		t.Fatalf("%s are kept; ten hours at 2.00 are 20.00", kept)
	}
}

// A quarter of what matures is kept as bond, until the bond is ten hours of the operator's list price; an operator who
// wants none keeps none.
func TestRetain_QuarterOfWhatMatures(t *testing.T) {
	t.Parallel()
	x := funded(t, 1000*money.Unit)
	x.offers(x.operator, 2, 2_000_000)
	want := func(payable, kept money.Nano) {
		t.Helper()
		for a, n := range map[ledger.Account]money.Nano{
			ledger.HostPayable(x.operator, eur): payable,
			ledger.HostBond(x.operator, eur):    kept,
		} {
			got, err := ledger.Balance(t.Context(), x.DB.Q, a)
			if err != nil || got != n {
				t.Errorf("%s is %s, want %s (%v)", a.Kind, got, n, err)
			}
		}
	}
	x.earn(100 * money.Unit)
	x.payable()
	want(75*money.Unit, 25*money.Unit)
	x.payable() // nothing is new
	want(75*money.Unit, 25*money.Unit)
	x.earn(100 * money.Unit) // ten hours at 2 × 2.00 are 40: 15 more, not 25
	x.payable()
	want(160*money.Unit, 40*money.Unit)
	x.Exec("INSERT INTO bond_terms (org_id, retain_ppm) VALUES ($1, 0)", x.operator)
	x.Move(ledger.HostBond(x.operator, eur), ledger.HostPayable(x.operator, eur), 40*money.Unit)
	x.earn(100 * money.Unit)
	x.payable()
	want(300*money.Unit, 0)
	x.square()
}
