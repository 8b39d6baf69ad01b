package payment

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// treasury is a platform that has charged taxes in 2025.
type treasury struct {
	*testing.T
	d     *db.DB
	taxes *Taxes
	boss  account.Principal
}

func newTreasury(t *testing.T, d *db.DB) *treasury {
	t.Helper()
	o := &treasury{t, d, &Taxes{core: &core{
		d:   d,
		cfg: Config{Currency: "EUR"},
	}}, account.Principal{User: id.New[id.User](), Org: billingtest.New(t, d).Org(), Admin: true}}
	for _, x := range []struct {
		at, country string
		cents       int64
	}{{"2025-01-31T23:59:59Z", "DE", 1900}, {"2025-02-01T00:00:00Z", "DE", -400}, {"2025-03-10T12:00:00Z", "DE", 700},
		{"2025-01-02T00:00:00Z", "FR", 2000}} {
		key, n, way := "sale:"+x.at, money.Nano(x.cents)*money.Cent, ledger.Transfer{
			Debit:  ledger.StripeClearing("EUR"),
			Credit: ledger.TaxPayable("EUR"),
		}
		if way.Amount = n; n < 0 {
			way.Debit, way.Credit, way.Amount = way.Credit, way.Debit, -n
		}
		if _, err := d.Pool.Exec(t.Context(), `INSERT INTO tax_entry (key, org_id, kind, ref, country, vat_id, reason, name,
			ppm, net, tax, currency, created_at)
			VALUES ($1, $2, 'topup', '', $3, '', 'home', 'VAT', 190000, $4, $4, 'EUR',
			$5::text::timestamptz)`, key, o.boss.Org, x.country, int64(n), x.at); err != nil {
			t.Fatal(err)
		}
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := ledger.Post(ctx, tx, ledger.Entry{Kind: "topup", Key: key, Transfers: []ledger.Transfer{way}})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func (o *treasury) remit(period, country string, cents int64) error {
	return billingtest.Err(o.taxes.Remit(o.Context(), o.boss, tax.Remittance{
		Period:  period,
		Country: country,
		Amount:  money.Nano(cents) * money.Cent,
		Reason:  "transfer 17",
	}, idem.Request{}))
}

// paid returns what left the bank for tax offices; book and ledger agree on what is left.
func (o *treasury) paid() (cents int64) {
	o.Helper()
	n, err := ledger.Balance(o.Context(), o.d.Q, ledger.Bank("EUR"))
	if err != nil {
		o.Fatal(err)
	}
	r, err := tax.ReportOf(o.Context(), o.d.Q, "EUR", "2025")
	if err != nil || r.Book != r.Payable || r.Payable != 4200*money.Cent-n || r.Tax != 4200*money.Cent {
		o.Errorf("%+v %v", r, err)
	}
	b, err := ledger.Check(o.Context(), o.d)
	if err != nil || !b.Balanced() {
		o.Error(b.Problems, err)
	}
	return int64(n / money.Cent)
}

// left checks what may still be paid by the report.
func (o *treasury) left(period, country string, want int64) {
	o.Helper()
	r, err := tax.ReportOf(o.Context(), o.d.Q, "EUR", period)
	if err != nil {
		o.Fatal(err)
	}
	for _, x := range r.Offices {
		if x.Country == country {
			if x.Left != money.Nano(want)*money.Cent {
				o.Errorf("%s %s: %+v, want %d cents left", period, country, x, want)
			}
			return
		}
	}
	o.Errorf("%s %s: %+v", period, country, r.Offices)
}

// A tax office is never paid more than is owed to it for a period that is over, whichever periods are paid: a month's
// payment counts in its quarter and year, and a year's in its months.
func TestRemit_AmountOwed(t *testing.T) {
	t.Parallel()
	o := newTreasury(t, dbtest.New(t))
	o.left("2025-01", "DE", 1900)
	o.left("2025-Q1", "DE", 2200)
	refused := func(period, country string, cents int64, want fault.Kind) {
		t.Helper()
		before := o.paid()
		if err := o.remit(period, country, cents); !fault.Is(err, want) || o.paid() != before {
			t.Errorf("%s %s %d: %v", period, country, cents, err)
		}
	}
	refused("2025-Q1", "DE", 2201, fault.Invalid)
	refused("2025-Q1", "DE", 0, fault.Invalid)
	refused("2025-Q1", "DE", -1, fault.Invalid)
	refused("2025-02", "DE", 1, fault.Invalid) // more was given back than charged
	refused("2025-Q1", "GB", 1, fault.Invalid)
	refused("2025-Q5", "DE", 1, fault.Invalid)
	refused(time.Now().UTC().AddDate(1, 0, 0).Format("2006"), "DE", 1, fault.Conflict)
	for _, err := range []error{o.remit("2025-01", "DE", 1000), o.remit("2025-Q1", "DE", 1100)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	o.left("2025-Q1", "DE", 100)
	o.left("2025", "DE", 100)
	o.left("2025-01", "DE", 0)
	refused("2025-01", "DE", 1, fault.Invalid) // it is paid, and as much was paid of the quarter
	refused("2025", "DE", 101, fault.Invalid)
	if err := o.remit("2025", "DE", 100); err != nil || o.paid() != 2200 {
		t.Error(o.paid(), err)
	}
	o.left("2025-01", "FR", 2000) // another's office
	var trail int
	if err := o.d.Pool.QueryRow(t.Context(),
		"SELECT count(*) FROM audit_event WHERE action = 'billing.tax_remit'").Scan(&trail); err != nil || trail != 3 {
		t.Error(trail, err)
	}
	o.boss.Admin = false
	refused("2025-01", "FR", 1, fault.Forbidden)
	if _, err := o.d.Pool.Exec(t.Context(), "UPDATE tax_remittance SET amount = 1"); err == nil {
		t.Error("what was paid can be changed")
	}
}

// Many who pay one office at once do not pay it twice; a server that dies at any statement has paid nothing.
func TestRemit_Once(t *testing.T) {
	t.Parallel()
	d, k := dbtest.NewMortal(t)
	o := newTreasury(t, d)
	var wg sync.WaitGroup
	var done atomic.Int64
	for range 6 {
		wg.Go(func() {
			if err := o.remit("2025-01", "DE", 1000); err == nil {
				done.Add(1)
			} else if !fault.Is(err, fault.Invalid) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if done.Load() != 1 || o.paid() != 1000 {
		t.Errorf("%d paid, %d cents", done.Load(), o.paid())
	}
	for n := int64(1); ; n++ {
		k.Left.Store(n)
		err := o.remit("2025-Q1", "FR", 2000)
		if k.Left.Swap(0) > 0 {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if err == nil || n > 100 {
			t.Fatal("it is paid, or never gets done", n, err)
		}
		if got := o.paid(); got != 1000 {
			t.Fatalf("dead at statement %d, and %d cents are paid", n, got)
		}
	}
	if o.paid() != 3000 {
		t.Error(o.paid())
	}
}
