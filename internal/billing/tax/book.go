package tax

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Line is one of the book: a sale, or a part of one that is given back.
type Line struct {
	Key      string // of the ledger's entry that books the payment; once forever
	Org      id.Org
	Kind     Kind
	Ref      string     // prefixed id of the payment, refund or dispute
	Net, Tax money.Nano // of one sign; negative: given back
	Currency string
	Of       Tax // as it was decided for the payment; its Cents are not read
}

// Record writes a line. Call it in the transaction that posts the entry of the ledger with this key and moves Tax to or
// from tax_payable, and only if that entry is new. Sales that bear no tax are written too: they are reported.
func Record(ctx context.Context, tx *db.Tx, l Line) error {
	err := tx.Q.InsertTaxEntry(ctx, dbq.InsertTaxEntryParams{
		Key:      l.Key,
		OrgID:    l.Org,
		Kind:     string(l.Kind),
		Ref:      l.Ref,
		Country:  l.Of.Country,
		VatID:    l.Of.VATID,
		Reason:   string(l.Of.Reason),
		Name:     l.Of.Name,
		Ppm:      int32(l.Of.PPM),
		Net:      l.Net,
		Tax:      l.Tax,
		Currency: l.Currency,
	})
	if err != nil {
		return fmt.Errorf("record %s: %w", l.Key, err)
	}
	return nil
}
