package cli

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/server"
)

// Whatever bad amount is typed, after whatever command: exit 2 with a reason, and nothing is written.
func TestBadAmountsByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	host := p.sell(1, "2.00")
	p.admin("ada@example.com")
	written := func() (n int) {
		err := p.db.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM topup) + (SELECT count(*) FROM ledger_tx)
			+ (SELECT count(*) FROM budget) + (SELECT count(*) FROM auto_topup) + (SELECT count(*) FROM refund) + (SELECT
			count(*) FROM cluster)`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := written()
	for _, line := range []string{
		"billing topup -- AMOUNT", "billing refund -- AMOUNT",
		"billing auto-topup --below=AMOUNT --amount=50 --daily-cap=200",
		"billing auto-topup --below=20 --amount=AMOUNT --daily-cap=200",
		"billing auto-topup --below=20 --amount=50 --daily-cap=AMOUNT",
		"budget set --cap=AMOUNT", "budget set --max-price=AMOUNT", "host set " + host + " --price=AMOUNT",
		"quote --image=x/y:1 --budget=AMOUNT", "quote --image=x/y:1 --max-price=AMOUNT",
		"cluster create --image=x/y:1 --budget=AMOUNT", "cluster create --image=x/y:1 --max-price=AMOUNT",
		"admin compensate " + id.New[id.LedgerTx]().String() + " --reason=x --amount=AMOUNT",
	} {
		for _, amount := range []string{"-5", "1.0000000001", "99999999999999999999", "1e3", "1,000", "5EUR", "NaN"} {
			args := strings.Fields(line)
			for i := range args {
				args[i] = strings.Replace(args[i], "AMOUNT", amount, 1)
			}
			if r := p.run("", args...); r.code != 2 || r.errs == "" {
				t.Errorf("muster %s: exit %d %s%s", strings.Join(args, " "), r.code, r.out, r.errs)
			}
		}
	}
	if after := written(); after != before {
		t.Errorf("%d rows were written", after-before)
	}
}

func TestThePayoutMinimum(t *testing.T) {
	t.Parallel()
	for minimum, good := range map[string]bool{
		"10":          true,
		"0.01":        true,
		"12.50":       true,
		"":            false,
		"0":           false,
		"-10":         false,
		"10.005":      false,
		"1e1":         false,
		"10 EUR":      false,
		"99999999999": false,
	} {
		c := server.Config{PayoutMinimum: minimum}
		bad := false
		for _, f := range fault.From(c.Validate()).Fields {
			bad = bad || f.Location == "MUSTER_PAYOUT_MINIMUM"
		}
		if bad == good {
			t.Errorf("%q: refused is %v", minimum, bad)
		}
	}
}
