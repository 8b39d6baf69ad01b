package payment

import (
	"context"
	"sync"
	"testing"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// wish switches auto top-up on; the payer is a member of the org.
func (s *shop) wish(a AutoTopUp) {
	s.T.Helper()
	s.Exec("INSERT INTO app_user (id, email, password_hash) VALUES ($1, $2, 'x') ON CONFLICT DO NOTHING", s.payer.User,
		s.payer.User.String()+"@muster.test")
	if err := s.p.AutoTopUps.Set(s.T.Context(), s.payer, a); err != nil {
		s.T.Fatal(err)
	}
}

// spend takes from the wallet as a cluster would.
func (s *shop) spend(n money.Nano) {
	s.T.Helper()
	err := s.DB.InTx(s.T.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{Kind: "usage", Key: "spend:" + id.New[id.Cluster]().String(),
			Transfers: []ledger.Transfer{{Debit: ledger.Wallet(s.payer.Org, "EUR"), Credit: ledger.Fee("EUR"), Amount: n}}})
		return err
	})
	if err != nil {
		s.T.Fatal(err)
	}
}

func (s *shop) autos() {
	s.T.Helper()
	if _, err := s.p.AutoTopUps.Run(s.T.Context()); err != nil {
		s.T.Fatal(err)
	}
}

func (s *shop) notices(key string) (n int) {
	s.T.Helper()
	if err := s.DB.Pool.QueryRow(s.T.Context(), "SELECT count(*) FROM notice WHERE org_id = $1 AND dedupe_key LIKE $2",
		s.payer.Org, key).Scan(&n); err != nil {
		s.T.Fatal(err)
	}
	return n
}

func TestAutoTopUp_DailyCap(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	s.wish(AutoTopUp{Enabled: true, Threshold: 5 * money.Unit, Amount: 10 * money.Unit, DailyCap: 25 * money.Unit})
	var replicas sync.WaitGroup
	for range 4 { // all replicas look at the same moment
		replicas.Go(func() {
			if _, err := s.p.AutoTopUps.Run(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	replicas.Wait()
	if got := s.wallet(); got != 10*money.Unit {
		t.Fatalf("%s is there after the first", got)
	}
	s.autos() // enough is available
	s.square(1)
	s.spend(6 * money.Unit)
	s.autos()
	if got := s.wallet(); got != 14*money.Unit {
		t.Fatal(got)
	}
	s.spend(14 * money.Unit)
	s.autos() // 30 in a day would be more than the cap
	s.autos()
	if got := s.wallet(); got != 0 || s.notices("auto_topup:cap:%") != 1 {
		t.Fatal(got, s.notices("%"))
	}
	s.Exec("UPDATE topup SET created_at = created_at - interval '25 hours'")
	s.Exec("UPDATE auto_topup SET next_at = next_at - interval '25 hours'")
	s.autos()
	if got := s.wallet(); got != 10*money.Unit {
		t.Fatal("the next day", got)
	}
}

func TestAutoTopUp_DeclinedCardStopsIt(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"pm_card_chargeCustomerFail", "pm_card_authenticationRequired"} {
		s := newShop(t, method)
		s.wish(AutoTopUp{Enabled: true, Threshold: 5 * money.Unit, Amount: 10 * money.Unit, DailyCap: 100 * money.Unit})
		for range 3 {
			s.autos()
			s.SendAll(s.p.core.out)
		}
		a, err := s.p.AutoTopUps.Get(t.Context(), s.payer.Org)
		if err != nil || a.Enabled || a.Stopped == "" || s.notices("auto_topup:stopped:%") != 1 {
			t.Fatalf("%+v %v, %d notices", a, err, s.notices("%"))
		}
		list, err := s.p.TopUps.List(t.Context(), s.payer.Org, id.TopUp{}, 10)
		if err != nil || len(list) != 1 || list[0].State != Failed || !list[0].Automatic {
			t.Fatal(list, err)
		}
		s.square(0)
		s.wish(AutoTopUp{Enabled: true, Threshold: 5 * money.Unit, Amount: 10 * money.Unit, DailyCap: 100 * money.Unit})
		if a, _ := s.p.AutoTopUps.Get(t.Context(), s.payer.Org); !a.Enabled || a.Stopped != "" {
			t.Fatalf("it cannot be switched on again: %+v", a)
		}
	}
}

func TestAutoTopUp_BadInput(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	ok := AutoTopUp{Enabled: true, Threshold: money.Unit, Amount: 5 * money.Unit, DailyCap: 10 * money.Unit}
	for name, change := range map[string]func(*AutoTopUp){
		"threshold zero":     func(a *AutoTopUp) { a.Threshold = 0 },
		"threshold negative": func(a *AutoTopUp) { a.Threshold = -money.Unit },
		"amount zero":        func(a *AutoTopUp) { a.Amount = 0 },
		"amount negative":    func(a *AutoTopUp) { a.Amount = -money.Unit },
		"amount huge":        func(a *AutoTopUp) { a.Amount = 1 << 62 },
		"amount of mills":    func(a *AutoTopUp) { a.Amount++ },
		"cap below amount":   func(a *AutoTopUp) { a.DailyCap = a.Amount - 1 },
		"cap huge":           func(a *AutoTopUp) { a.DailyCap = 1 << 62 },
	} {
		a := ok
		change(&a)
		if err := s.p.AutoTopUps.Set(t.Context(), s.payer, a); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	none := newShopOn(t, s.DB, "")
	if err := none.p.AutoTopUps.Set(t.Context(), none.payer, ok); !fault.Is(err, fault.Conflict) {
		t.Error("without a card:", err)
	}
}
