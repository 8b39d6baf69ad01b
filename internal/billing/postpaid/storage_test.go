package postpaid

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// What volumes store is charged to an organisation that pays afterwards without money of its own, is part of its period
// and of the invoice to the cent, and is charged once.
func TestInvoice_HasStorage(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	w := newWorld(t, d)
	v := volume.New(d, nil, volume.Config{Currency: eur, PricePerGBHour: 1_000_000}) // a thousandth per GB and hour
	w.set(Change{On: true, Limit: 50 * money.Unit, Reason: "trusted"})
	w.SendAll(w.p.out)
	domain := id.New[id.DataDomain]()
	w.Exec("INSERT INTO data_domain (id, org_id, key_sealed) VALUES ($1, $2, 'x')", domain, w.org)
	w.Exec("INSERT INTO data_level (domain_id, from_at, bytes) VALUES ($1, clock_timestamp() - interval '100 hours', $2)",
		domain, 120*volume.GB)
	w.Exec("INSERT INTO data_meter (domain_id, through_at) VALUES ($1, clock_timestamp() - interval '100 hours')", domain)
	w.Exec("UPDATE postpaid_org SET period_start = clock_timestamp() - interval '10 minutes'")
	for range 2 { // the second time nothing is due
		if _, err := v.Meters.Charge(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	about := func(what string, got money.Nano) {
		t.Helper()
		if got < 12*money.Unit || got > 12*money.Unit+money.Cent/2 {
			t.Errorf("%s: %v, want 12.00 and what a few seconds more cost", what, got)
		}
	}
	w.pass(time.Hour)
	if err := w.charge(); err != nil {
		t.Fatal(err)
	}
	lines, err := w.p.Lines(t.Context(), w.org, "")
	if err != nil || len(lines.Items) != 0 {
		t.Fatalf("%+v %v", lines, err)
	}
	about("storage of the period", lines.Storage)
	about("used in the period", lines.Used)
	about("charged", lines.Charged)
	w.SendAll(w.p.out)
	w.pass(time.Minute)
	w.fake.Billing.EndPeriod(w.customer())
	w.settle()
	w.ofOnly(stripe.InvoicePaid, 12*money.Unit, 0)
	w.MustBalance()
}
