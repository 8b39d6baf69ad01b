package bond_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

const usd = "USD"

// wallet is an operator with a wallet, payable earnings and a bond.
type wallet struct {
	*billingtest.World
	who account.Principal
}

func newWallet(t *testing.T, d *db.DB) *wallet {
	t.Helper()
	w := billingtest.New(t, d)
	p := &wallet{w, account.Principal{Org: w.Org(), User: id.New[id.User]()}}
	p.Exec("INSERT INTO app_user (id, email, password_hash) VALUES ($1, $2, 'x')", p.who.User, p.who.User.String()+
		"@example.com")
	return p
}

// payIn pays into the wallet by card.
func (p *wallet) payIn(n money.Nano) {
	p.T.Helper()
	top := id.New[id.TopUp]()
	p.Exec("INSERT INTO topup (id, org_id, user_id, amount, currency, state, payment_intent_id) VALUES ($1, $2, $3, "+
		"$4, $5, 'succeeded', $6)",
		top, p.who.Org, p.who.User, n, usd, "pi_"+top.String())
	p.Move(ledger.StripeClearing(usd), ledger.Wallet(p.who.Org, usd), n)
}

func (p *wallet) deposit(n money.Nano) error {
	_, _, err := bond.New(p.DB, usd).Deposit(p.T.Context(), p.who, n, idem.Request{})
	return err
}

func (p *wallet) withdraw(n money.Nano) (out bond.Withdrawn, err error) {
	out, _, err = bond.New(p.DB, usd).Withdraw(p.T.Context(), p.who, n, idem.Request{})
	return out, err
}

func (p *wallet) want(wallet, payable, kept money.Nano) {
	p.T.Helper()
	for _, x := range []struct {
		a    ledger.Account
		want money.Nano
	}{{ledger.Wallet(p.who.Org, usd), wallet}, {ledger.HostPayable(p.who.Org, usd), payable},
		{ledger.HostBond(p.who.Org, usd), kept}} {
		got, err := ledger.Balance(p.T.Context(), p.DB.Q, x.a)
		if err != nil || got != x.want {
			p.T.Errorf("%s has %s, %v, want %s", x.a.Kind, got, err, x.want)
		}
	}
}

func sound(t *testing.T, d *db.DB) {
	t.Helper()
	b, err := ledger.Check(t.Context(), d)
	if err != nil || !b.Balanced() {
		t.Fatal(b.Problems, err)
	}
}

func kindOf(err error) fault.Kind {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f.Kind
	}
	return ""
}

// A bond is fed by paid credit only, and what came from a card goes back to the wallet: it never becomes a payout.
func TestBond_DepositAndWithdrawPaidCredit(t *testing.T) {
	t.Parallel()
	p := newWallet(t, dbtest.New(t))
	p.Move(ledger.Promo(usd), ledger.Wallet(p.who.Org, usd), 50*money.Unit)
	if err := p.deposit(1); kindOf(err) != fault.InsufficientFunds {
		t.Fatalf("promotional credit became a bond: %v", err)
	}
	p.payIn(10 * money.Unit)
	if err := p.deposit(10*money.Unit + 1); kindOf(err) != fault.InsufficientFunds {
		t.Fatalf("more than was paid in became a bond: %v", err)
	}
	if err := p.deposit(10 * money.Unit); err != nil {
		t.Fatal(err)
	}
	if err := p.deposit(1); kindOf(err) != fault.InsufficientFunds {
		t.Fatalf("the same payment was counted twice: %v", err)
	}
	p.want(50*money.Unit, 0, 10*money.Unit)

	p.Move(ledger.StripeClearing(usd), ledger.HostPayable(p.who.Org, usd), 5*money.Unit)
	p.Move(ledger.HostPayable(p.who.Org, usd), ledger.HostBond(p.who.Org, usd), 5*money.Unit) // as retained
	out, err := p.withdraw(12 * money.Unit)
	if err != nil || out.ToWallet != 10*money.Unit || out.ToPayable != 2*money.Unit {
		t.Fatal(out, err)
	}
	p.want(60*money.Unit, 2*money.Unit, 3*money.Unit)
	if _, err := p.withdraw(3*money.Unit + 1); kindOf(err) != fault.InsufficientFunds {
		t.Fatalf("withdrew more than there is: %v", err)
	}
	sound(t, p.DB)
}

// A host of another organisation, a retired one and one that does not exist are not found, and leave no line in the
// audit log; a host without a limit of its own may be cleared again.
func TestBond_LimitOfForeignHost(t *testing.T) {
	t.Parallel()
	p := newWallet(t, dbtest.New(t))
	bonds, most := bond.New(p.DB, usd), 5*money.Unit
	own, gone, foreign := p.Host(p.who.Org, nil), p.Host(p.who.Org, nil), p.Host(p.Org(), nil)
	p.Exec("UPDATE host SET state = 'retired' WHERE id = $1", gone)
	p.Exec("INSERT INTO bond_host_terms (host_id, liability_max) VALUES ($1, 1), ($2, 1)", gone, foreign)
	for _, limit := range []*money.Nano{&most, nil} {
		for _, h := range []id.Host{gone, foreign, id.New[id.Host]()} {
			if _, err := bonds.SetHostLiability(t.Context(), p.who, h, limit); kindOf(err) != fault.NotFound {
				t.Errorf("%s, limit %v: %v", h, limit, err)
			}
		}
	}
	var lines, limits int
	if err := p.DB.Pool.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM audit_event), (SELECT count(*) FROM "+
		"bond_host_terms)").Scan(&lines, &limits); err != nil || lines != 0 || limits != 2 {
		t.Fatalf("%d lines in the audit log, %d limits: %v", lines, limits, err)
	}
	for _, limit := range []*money.Nano{&most, nil, nil} {
		if s, err := bonds.SetHostLiability(t.Context(), p.who, own, limit); err != nil || (limit != nil) !=
			(len(s.Hosts) == 2) {
			t.Fatalf("%v: %+v, %v", limit, s.Hosts, err)
		}
	}
}

// I6 and I13: the accounts have floors that the database holds, so no program can take more out than is there.
func TestBond_I6_AccountsHaveFloors(t *testing.T) {
	t.Parallel()
	p := newWallet(t, dbtest.New(t))
	lease := id.New[id.Lease]()
	p.payIn(10 * money.Unit)
	if err := p.deposit(10 * money.Unit); err != nil {
		t.Fatal(err)
	}
	p.Move(ledger.HostBond(p.who.Org, usd), ledger.BondHold(p.who.Org, lease, usd), 4*money.Unit)
	for _, a := range []ledger.Account{ledger.HostBond(p.who.Org, usd), ledger.BondHold(p.who.Org, lease, usd)} {
		_, err := p.DB.Pool.Exec(t.Context(), `UPDATE ledger_balance SET amount = -1 WHERE account_id = (SELECT id FROM
			ledger_account WHERE kind = $1 AND owner = $2)`,
			string(a.Kind), a.Owner)
		if err == nil {
			t.Errorf("%s may fall below zero", a.Kind)
		}
	}
	if _, err := p.withdraw(6*money.Unit + 1); kindOf(err) != fault.InsufficientFunds {
		t.Fatalf("withdrew what is reserved for a lease: %v", err)
	}
}

// Deposits and withdrawals at random, with the server killed at every statement, lose and make nothing (I3).
func TestBond_I3_DepositsAndWithdrawalsConserve(t *testing.T) {
	t.Parallel()
	d, k := dbtest.NewMortal(t)
	p := newWallet(t, d)
	p.payIn(100 * money.Unit)
	p.Move(ledger.StripeClearing(usd), ledger.HostPayable(p.who.Org, usd), 30*money.Unit)
	p.Move(ledger.HostPayable(p.who.Org, usd), ledger.HostBond(p.who.Org, usd), 20*money.Unit)
	r := rand.New(rand.NewPCG(12, 1))
	died := 0
	for n := range 120 {
		k.Left.Store(int64(1 + n%14))
		amount := money.Nano(1 + r.Int64N(int64(40*money.Unit)))
		var err error
		if r.IntN(2) == 0 {
			err = p.deposit(amount)
		} else {
			_, err = p.withdraw(amount)
		}
		if k.Left.Swap(0) <= 0 && err != nil && kindOf(err) != fault.InsufficientFunds {
			died++
		}
	}
	if died < 10 {
		t.Fatalf("killed %d times: the killer does not kill", died)
	}
	sum := money.Nano(0)
	for _, a := range []ledger.Account{ledger.Wallet(p.who.Org, usd), ledger.HostPayable(p.who.Org, usd),
		ledger.HostBond(p.who.Org, usd)} {
		n, err := ledger.Balance(t.Context(), d.Q, a)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if sum != 130*money.Unit {
		t.Fatalf("%s in all, want 130", sum)
	}
	in, err := bond.Deposited(t.Context(), d.Q, p.who.Org, usd)
	if err != nil {
		t.Fatal(err)
	}
	wallet, err := ledger.Balance(t.Context(), d.Q, ledger.Wallet(p.who.Org, usd))
	if err != nil || wallet+in != 100*money.Unit {
		t.Fatalf("wallet %s and deposited %s, want 100 together: %v", wallet, in, err)
	}
	sound(t, d)
}
