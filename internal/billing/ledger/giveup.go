package ledger

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// GiveUp books what an org has to breakage, because no member is left to whom it could be paid: the wallet, earnings
// and the bond. What a dispute claims stays, and so does what is held for something.
func GiveUp(ctx context.Context, tx *db.Tx, org id.Org) error {
	rows, err := tx.Q.LedgerOrgMoney(ctx, org)
	if err != nil {
		return fmt.Errorf("read what %s has: %w", org, err)
	}
	if len(rows) == 0 {
		return nil
	}
	var from, all []Account
	for _, r := range rows {
		a := Account{Kind: Kind(r.Kind), Owner: r.Owner.Bytes, Org: org, Currency: r.Currency}
		from, all = append(from, a), append(all, a, Breakage(r.Currency))
	}
	l, err := Lock(ctx, tx, all...)
	if err != nil {
		return err
	}
	e := Entry{
		Kind: "breakage",
		Key:  fmt.Sprintf("breakage:%s:%s", org, id.New[id.LedgerTx]()),
		Ref:  org.String(),
		Memo: "given up when the account was deleted",
	}
	for _, a := range from {
		if n := l.Spendable(a); n > 0 {
			e.Transfers = append(e.Transfers, Transfer{Debit: a, Credit: Breakage(a.Currency), Amount: n})
		}
	}
	if len(e.Transfers) == 0 {
		return nil
	}
	_, err = l.Post(ctx, e)
	return err
}
