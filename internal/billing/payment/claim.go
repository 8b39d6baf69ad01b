package payment

import (
	"context"

	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/money"
)

// taken is what a claim of a dispute takes of its org's own money.
type taken struct {
	wallet    money.Nano // out of the wallet
	deposited money.Nano // out of the bond of its hosts, where it came from the wallet: returns there
	earned    money.Nano // out of the bond, where it was retained from earnings: returns to the bond
}

func (t taken) sum() money.Nano { return t.wallet + t.deposited + t.earned }

// to returns the transfers that move it into an account.
func (t taken) to(wallet, into ledger.Account) []ledger.Transfer {
	return some(ledger.Transfer{Debit: wallet, Credit: into, Amount: t.wallet},
		ledger.Transfer{Debit: ledger.HostBond(wallet.Org, wallet.Currency), Credit: into, Amount: t.deposited + t.earned})
}

// some returns the transfers that move anything.
func some(all ...ledger.Transfer) []ledger.Transfer {
	out := make([]ledger.Transfer, 0, len(all))
	for _, t := range all {
		if t.Amount > 0 {
			out = append(out, t)
		}
	}
	return out
}

// takeClaim returns what a claim takes of its org's money: of the wallet, which has so much for it, and then of the
// bond, if that is among the locked accounts, what is not reserved. It counts what leaves the bond. The caller posts
// the transfers before it takes another claim.
func takeClaim(ctx context.Context, tx *db.Tx, books *ledger.Locked, wallet ledger.Account,
	has, claim money.Nano) (t taken, err error) {
	t.wallet = max(0, min(claim, has))
	account := ledger.HostBond(wallet.Org, wallet.Currency)
	if !books.Has(account) {
		return t, nil
	}
	part := min(claim-t.wallet, books.Spendable(account))
	if part <= 0 {
		return t, nil
	}
	if t.deposited, err = bond.Take(ctx, tx, wallet.Org, wallet.Currency, part); err != nil {
		return t, err
	}
	t.earned = part - t.deposited
	return t, nil
}
