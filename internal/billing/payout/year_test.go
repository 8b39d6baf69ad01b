package payout

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

func TestYear_TaxReturn(t *testing.T) {
	t.Parallel()
	x := funded(t, 1000*money.Unit)
	x.earn(50*money.Unit + 7)
	x.Move(ledger.HostPending(x.operator, eur), ledger.Wallet(x.renter.Org, eur), 5*money.Unit)
	x.payable()
	x.payDue()
	x.fake.Transfers.Reverse(x.fake.Transfers.IDs()[0], 250)
	x.Deliver(x.in, x.fake.Webhooks.Deliveries())
	year := strconv.Itoa(x.Now().Year())
	y, err := x.p.Year(t.Context(), x.operator, year)
	if err != nil || len(y.Months) != 1 {
		t.Fatalf("%+v %v", y, err)
	}
	if m := y.Months[0]; m.Earned != 50*money.Unit+7 || m.Returned != 5*money.Unit || m.Paid != 45*money.Unit ||
		m.TakenBack != 2*money.Unit+500_000_000 || !strings.HasPrefix(m.Month, year+"-") {
		t.Fatalf("%+v", m)
	}
	var b bytes.Buffer
	if err := y.CSV(&b); err != nil || !strings.HasSuffix(b.String(),
		"total,50.000000007,5.000000000,45.000000000,2.500000000,EUR\n") {
		t.Fatal(b.String(), err)
	}
	if y, err := x.p.Year(t.Context(), x.operator, "2001"); err != nil || len(y.Months) != 0 {
		t.Fatalf("%+v %v", y, err)
	}
	if y, err := x.p.Year(t.Context(), x.renter.Org, year); err != nil || len(y.Months) != 0 {
		t.Fatalf("another's: %+v %v", y, err)
	}
	for _, bad := range []string{"", "x", "1999", "10000", "-1"} {
		if _, err := x.p.Year(t.Context(), x.operator, bad); fault.KindOf(err) != fault.Invalid {
			t.Error(bad, err)
		}
	}
}
