package payment

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/document"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

func (s *shop) creditNotes() []CreditNote {
	s.T.Helper()
	var year int
	if err := s.DB.Pool.QueryRow(s.T.Context(),
		"SELECT extract(year FROM clock_timestamp() AT TIME ZONE 'UTC')::integer").Scan(&year); err != nil {
		s.T.Fatal(err)
	}
	list, err := s.p.Receipts.CreditNotes(s.T.Context(), s.payer.Org, strconv.Itoa(year))
	if err != nil {
		s.T.Fatal(err)
	}
	return list
}

// What goes back of a payment has a credit note with a number of its own, which names the receipt and its parties; one
// for a refund that does not arrive is cancelled by another. Receipts and credit notes have one series each.
func TestCreditNote_ForEveryReturn(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	s.p.core.cfg.Taxer = tax.Flat{Rates: tax.EU()}
	s.p.core.cfg.Merchant = account.Party{
		Name:    "Muster Ltd",
		Address: []string{"1 Street"},
		Country: "DE",
		VATID:   "DE136695976",
	}
	s.Exec("INSERT INTO org_legal (org_id, name, address, country) VALUES ($1, 'Ada GmbH', '{b}', 'DE')", s.payer.Org)
	first, second := s.topUp(100*money.Unit), s.topUp(7*money.Unit)
	s.want(first, Succeeded)
	s.want(second, Succeeded)
	var receipts []Receipt
	for _, p := range []TopUp{first, second} {
		r, err := s.p.Receipts.Get(t.Context(), s.payer.Org, p.ID)
		if err != nil {
			t.Fatal(err)
		}
		receipts = append(receipts, r)
	}
	if !strings.HasSuffix(receipts[0].Number, "-000001") || !strings.HasSuffix(receipts[1].Number, "-000002") ||
		!strings.HasPrefix(receipts[0].Number, "R-") {
		t.Fatal(receipts[0].Number, receipts[1].Number)
	}
	s.Exec("UPDATE org_legal SET name = 'Another AG'")
	made, _, err := s.p.Refunds.GiveBack(t.Context(), s.payer, 7*money.Unit+50*money.Unit, idem.Request{})
	if err != nil || len(made) != 2 {
		t.Fatal(made, err)
	}
	list := s.creditNotes() // newest first
	if len(list) != 2 {
		t.Fatalf("%+v", list)
	}
	c := list[0]
	if c.Corrects != receipts[0].Number || c.Kind != tax.Refund || c.Net != 50*money.Unit || c.Tax.Amount != 9*money.Unit+
		50*money.Cent || c.Total != 59*money.Unit+50*money.Cent ||
		c.Customer.Name != "Ada GmbH" || c.Merchant.Name != "Muster Ltd" || c.Cancels != "" || c.Tax.Percent != "19" {
		t.Errorf("%+v", c)
	}
	if got, err := s.p.Receipts.CreditNote(t.Context(), s.payer.Org, c.Number); err != nil || got.Number != c.Number ||
		got.Total != c.Total {
		t.Errorf("%+v %v", got, err)
	}
	// One bounces: its credit note is cancelled by another.
	if err := s.DB.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		r, err := tx.Q.RefundForUpdate(ctx, made[0].ID)
		if err != nil {
			return err
		}
		return s.p.Refunds.fail(ctx, tx, r, "re_x", "The bank sent it back.")
	}); err != nil {
		t.Fatal(err)
	}
	list = s.creditNotes()
	if len(list) != 3 || list[0].Kind != tax.RefundReturned || list[0].Total >= 0 || list[0].Cancels == "" ||
		list[0].Corrects == "" {
		t.Fatalf("%+v", list)
	}
	var sum money.Nano
	for _, c := range list {
		sum += c.Tax.Amount
	}
	var booked int64
	if err := s.DB.Pool.QueryRow(t.Context(),
		"SELECT -coalesce(sum(tax), 0)::bigint FROM tax_entry WHERE kind <> 'topup'").Scan(&booked); err != nil ||
		int64(sum) != booked {
		t.Errorf("credit notes give back %d of tax, the book %d: %v", sum, booked, err)
	}
	checks, err := document.CheckAll(t.Context(), s.DB.Q)
	if err != nil || len(checks) != 2 || checks[0].Problem+checks[1].Problem != "" {
		t.Errorf("%+v %v", checks, err)
	}
}
