package payment

import (
	"context"
	"errors"
	"fmt"

	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Claims collects what disputes claim of their orgs' own money.
type Claims struct{ *core }

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

// Collect moves what disputes claim out of the wallets and bonds it has returned to: of an open dispute to
// dispute_hold, of a lost one to bad_debt. It returns how many organisations it processed. Nothing depends on when it
// runs, because what is claimed cannot be spent meanwhile. Run it every few seconds, on any number of replicas.
func (cl *Claims) Collect(ctx context.Context) (n int, err error) {
	rows, err := cl.d.Q.WalletsWithClaims(ctx, batchRows)
	if err != nil {
		return 0, fmt.Errorf("read wallets with claims: %w", err)
	}
	var errs []error
	for _, r := range rows {
		if err := cl.collect(ctx, r.OrgID, r.Currency); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// collect is Collect for one organisation. Open disputes come first, the oldest of each kind first.
func (cl *Claims) collect(ctx context.Context, org id.Org, currency string) error {
	err := cl.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		rows, err := tx.Q.LockDisputesWithClaims(ctx, org, currency)
		if err != nil {
			return fmt.Errorf("lock disputes: %w", err)
		}
		wallet := ledger.Wallet(org, currency)
		accounts, err := bond.Account(ctx, tx.Q, org, currency)
		if err != nil {
			return err
		}
		books, err := ledger.Lock(ctx, tx, append(accounts, wallet, ledger.DisputeHold(org, currency),
			ledger.BadDebt(currency))...)
		if err != nil {
			return err
		}
		if err := reserveIn(ctx, books, wallet, 0); err != nil { // what is reserved is taken now
			return err
		}
		for _, open := range []bool{true, false} {
			for _, d := range rows {
				if (d.State == disputeOpen) != open {
					continue
				}
				if err := collectFor(ctx, tx, books, wallet, d); err != nil {
					return fmt.Errorf("dispute %s: %w", d.ID, err)
				}
			}
		}
		return reserve(ctx, tx, books, wallet)
	})
	if err != nil {
		return fmt.Errorf("collect from %s: %w", org, err)
	}
	return nil
}

// collectNow is collect for what was just credited; Collect does it again where it fails.
func (cl *Claims) collectNow(ctx context.Context, org id.Org, currency string) {
	c, err := cl.d.Q.DisputeClaims(ctx, org, currency)
	if err == nil && c.Short+c.Debt > 0 {
		err = cl.collect(ctx, org, currency)
	}
	if err != nil {
		cl.log.WarnContext(ctx, "claims are left to the next pass", "org", org, "err", err)
	}
}

// collectFor moves what one dispute claims, as far as there is something to take.
func collectFor(ctx context.Context, tx *db.Tx, books *ledger.Locked, wallet ledger.Account,
	d dbq.LockDisputesWithClaimsRow) error {
	take, err := takeClaim(ctx, tx, books, wallet, max(0, books.Balance(wallet)), money.Nano(d.Claim))
	part := take.sum()
	if err != nil || part == 0 {
		return err
	}
	e := ledger.Entry{Ref: wallet.Org.String()}
	if d.State == disputeOpen {
		e.Kind, e.Key, e.Memo = "dispute", fmt.Sprintf("dispute:%s:aside:%d", d.ID, int64(d.Held+part)),
			"a payment is disputed"
		e.Transfers = take.to(wallet, ledger.DisputeHold(wallet.Org, wallet.Currency))
		err = tx.Q.SetDisputeHeld(ctx, d.Held+part, d.HeldBond+take.earned, d.ID)
	} else {
		e.Kind, e.Key, e.Memo = "dispute_repaid", fmt.Sprintf("dispute:%s:repaid:%d", d.ID, int64(d.Debt-part)),
			"repays a lost dispute"
		e.Transfers = take.to(wallet, ledger.BadDebt(wallet.Currency))
		err = tx.Q.SetDisputeDebt(ctx, d.Debt-part, d.ID)
	}
	if err != nil {
		return fmt.Errorf("set debt: %w", err)
	}
	booked, err := books.Post(ctx, e)
	if err == nil && !booked { // the row and the ledger move together or not at all
		err = fmt.Errorf("%s is in the ledger and not on its row", e.Key)
	}
	return err
}

// reserve makes what the org's disputes claim unavailable in its wallet and in the bond of its hosts, whatever is
// credited to them later. books has the wallet, and the bond if there is one.
func reserve(ctx context.Context, tx *db.Tx, books *ledger.Locked, wallet ledger.Account) error {
	c, err := tx.Q.DisputeClaims(ctx, wallet.Org, wallet.Currency)
	if err != nil {
		return fmt.Errorf("read claims on %s: %w", wallet.Org, err)
	}
	return reserveIn(ctx, books, wallet, money.Nano(c.Short+c.Debt))
}

func reserveIn(ctx context.Context, books *ledger.Locked, wallet ledger.Account, claims money.Nano) error {
	if err := books.Reserve(ctx, wallet, claims); err != nil {
		return err
	}
	if kept := ledger.HostBond(wallet.Org, wallet.Currency); books.Has(kept) {
		return books.Reserve(ctx, kept, claims)
	}
	return nil
}
