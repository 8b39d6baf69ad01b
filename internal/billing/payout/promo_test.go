package payout

import (
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
)

// Credit that was given away is neither refunded nor paid out to the org that has it, also when that org could be paid
// and the platform's account has money of others. Ending the code changes nothing of it, and no one gets more.
func TestPromo_NeverPaidOut(t *testing.T) {
	t.Parallel()
	x := funded(t, 100*money.Unit)
	const code = "WELCOME-2027"
	redeem := func(who account.Principal) error {
		return billingtest.Err(x.pay.PromoCodes.Redeem(t.Context(), who, code, idem.Request{}))
	}
	disable := func(who account.Principal, code string) (c payment.PromoCode, err error) {
		c, _, err = x.pay.PromoCodes.Disable(t.Context(), who, code, "a test", idem.Request{})
		return c, err
	}
	cash := func(when string) {
		t.Helper()
		x.payable()
		if n := x.payDue(); n != 0 {
			t.Errorf("%s: %d payouts", when, n)
		}
		err := billingtest.Err(x.p.PayNow(x.T.Context(), x.boss, x.operator, "a test", idem.Request{}))
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: paid out: %v", when, err)
		}
		if n, err := x.pay.Refunds.Refundable(t.Context(), x.operator); err != nil || n != 0 {
			t.Errorf("%s: %s can be given back, %v", when, n, err)
		}
		_, _, err = x.pay.Refunds.GiveBack(t.Context(), x.owner, money.Unit, idem.Request{})
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: given back: %v", when, err)
		}
		if n, err := ledger.Balance(t.Context(), x.DB.Q, ledger.Wallet(x.operator, eur)); err != nil || n != 50*money.Unit {
			t.Errorf("%s: the wallet has %s, %v", when, n, err)
		}
		x.SendAll(x.p.out)
		x.sent(when, 0, 0)
	}
	if err := billingtest.Err(x.pay.PromoCodes.Create(x.T.Context(), x.boss, payment.PromoCode{
		Code:    code,
		Amount:  50 * money.Unit,
		MaxUses: 5,
	}, "a test", idem.Request{})); err != nil {
		t.Fatal(err)
	}
	if err := redeem(x.owner); err != nil {
		t.Fatal(err)
	}
	cash("redeemed")
	if _, err := disable(x.owner, code); !fault.Is(err, fault.Forbidden) {
		t.Error(err)
	}
	if _, err := disable(x.boss, "NO-SUCH-CODE"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if err := billingtest.Err(x.pay.PromoCodes.Disable(x.T.Context(), x.boss, code, " ", idem.Request{})); !fault.Is(err,
		fault.Invalid) {
		t.Errorf("without a reason: %v", err)
	}
	if c, err := disable(x.boss, " welcome-2027"); err != nil || c.Uses != 1 || c.ExpiresAt == nil {
		t.Fatalf("%+v %v", c, err)
	}
	if _, err := disable(x.boss, code); !fault.Is(err, fault.Conflict) {
		t.Error(err)
	}
	if err := redeem(x.renter); !fault.Is(err, fault.NotFound) {
		t.Errorf("a code that was ended: %v", err)
	}
	cash("disabled")
	if all, err := x.pay.PromoCodes.List(t.Context(), x.boss); err != nil || len(all) != 1 || all[0].Uses != 1 ||
		all[0].ExpiresAt == nil {
		t.Errorf("%+v %v", all, err)
	}
	if _, err := x.pay.PromoCodes.List(t.Context(), x.owner); !fault.Is(err, fault.Forbidden) {
		t.Error(err)
	}
	x.square()
}
