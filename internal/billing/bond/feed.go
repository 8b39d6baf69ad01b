package bond

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/claim"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/owed"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// Deposited returns what of an operator's bond came out of its wallet and has not gone back there.
func Deposited(ctx context.Context, q *dbq.Queries, org id.Org, currency string) (money.Nano, error) {
	n, err := q.BondDeposited(ctx, org, currency)
	if err != nil && !db.NoRows(err) {
		return 0, fmt.Errorf("read bond deposits of %s: %w", org, err)
	}
	return n, nil
}

// Depositable returns what an operator could move from its wallet into its bond now: its own money that it paid in.
// Credit that was given away, and credit of an organisation that pays afterwards, is not among it; nor is a disputed
// payment.
func Depositable(ctx context.Context, q *dbq.Queries, org id.Org, currency string) (money.Nano, error) {
	wallet, err := ledger.Balance(ctx, q, ledger.Wallet(org, currency))
	if err != nil {
		return 0, err
	}
	return depositable(ctx, q, org, currency, wallet)
}

func depositable(ctx context.Context, q *dbq.Queries, org id.Org, currency string,
	wallet money.Nano) (money.Nano, error) {
	paid, err := q.BondPaidIn(ctx, org, currency)
	if err != nil {
		return 0, fmt.Errorf("read payments of %s: %w", org, err)
	}
	in, err := Deposited(ctx, q, org, currency)
	if err != nil {
		return 0, err
	}
	storage, err := owed.Read(ctx, q, org)
	if err != nil {
		return 0, err
	}
	return max(0, min(storage.Of(wallet), money.Nano(paid)-in)), nil
}

// Deposit moves an amount from the wallet of the caller's organisation into its bond, and returns the bond as it is
// then. Faults: Invalid for an amount that is not above zero; InsufficientFunds for more than Depositable, with how
// much that is.
func (b *Bonds) Deposit(ctx context.Context, who account.Principal, amount money.Nano,
	once idem.Request) (Standing, idem.Outcome, error) {
	return idem.Once(ctx, b.d, once, func(ctx context.Context, tx *db.Tx) (Standing, error) {
		if err := deposit(ctx, tx, who, b.currency, amount); err != nil {
			return Standing{}, err
		}
		return b.standing(ctx, tx.Q, who.Org, Shown)
	})
}

func deposit(ctx context.Context, tx *db.Tx, who account.Principal, currency string, amount money.Nano) error {
	if amount <= 0 {
		return fault.InvalidField("amount", "must be above zero")
	}
	// As refunds do: no payment is refunded while what is left of it is counted.
	if _, err := tx.Q.LockTopupsOfOrg(ctx, who.Org); err != nil {
		return fmt.Errorf("lock payments of %s: %w", who.Org, err)
	}
	wallet, bond := ledger.Wallet(who.Org, currency), ledger.HostBond(who.Org, currency)
	books, err := ledger.Lock(ctx, tx, bond, wallet)
	if err != nil {
		return err
	}
	most, err := depositable(ctx, tx.Q, who.Org, currency, books.Balance(wallet)-books.Reserved(wallet))
	if err != nil {
		return err
	}
	if amount > most {
		return fault.New(fault.InsufficientFunds, "%s can be deposited now: what you paid in and have not used; "+
			"promotional credit cannot", most.Plain())
	}
	if err := tx.Q.AddBondDeposited(ctx, who.Org, currency, amount); err != nil {
		return fmt.Errorf("add deposit of %s: %w", who.Org, err)
	}
	if _, err := books.Post(ctx, ledger.Entry{
		Kind:      "bond_deposit",
		Key:       "bond_deposit:" + id.New[id.LedgerTx]().String(),
		Ref:       who.Org.String(),
		Memo:      "from your balance into the bond",
		Transfers: []ledger.Transfer{{Debit: wallet, Credit: bond, Amount: amount}},
	}); err != nil {
		return err
	}
	return audit.Record(ctx, tx, who.Event("bond.deposit", who.Org.String(), map[string]any{"amount": amount.String()}))
}

// free is the part of a bond that is not reserved for leases.
type free struct {
	amount  money.Nano
	claimed money.Nano // of it
}

// withdrawable returns the free part of a bond, whose account and those of pending and payable earnings are locked.
func withdrawable(books *ledger.Locked, org id.Org, currency string, c claim.Claims) free {
	bond := ledger.HostBond(org, currency)
	has := books.Balance(bond)
	onBond := c.OnBond(books.Balance(ledger.HostPending(org, currency)), books.Balance(ledger.HostPayable(org, currency)))
	return free{has, min(has, books.Reserved(bond)+onBond)}
}

func (f free) allows(amount money.Nano) error {
	switch left := f.amount - f.claimed; {
	case amount <= left:
		return nil
	case f.claimed > 0:
		return fault.New(fault.InsufficientFunds, "%s can be withdrawn now: %s of your bond are held back, because payments "+
			"that you earned from or made are disputed or in review", left.Plain(), f.claimed.Plain())
	default:
		return fault.New(fault.InsufficientFunds, "%s of your bond is not reserved for a running lease and can be withdrawn "+
			"now", left.Plain())
	}
}

// Withdrawn describes where a withdrawal went.
type Withdrawn struct {
	ToWallet  money.Nano // what had come out of the wallet
	ToPayable money.Nano // the rest: earnings, payable again
	Bond      Standing   // after the withdrawal
}

// Withdraw takes an amount out of the part of the bond that is neither reserved for a lease nor claimed by disputes and
// reviews. It goes back to the wallet as far as it came from there, and else becomes payable. Faults: Invalid for an
// amount that is not above zero; InsufficientFunds for more than that part, with how much it is.
func (b *Bonds) Withdraw(ctx context.Context, who account.Principal, amount money.Nano,
	once idem.Request) (Withdrawn, idem.Outcome, error) {
	return idem.Once(ctx, b.d, once, func(ctx context.Context, tx *db.Tx) (Withdrawn, error) {
		out, err := withdraw(ctx, tx, who, b.currency, amount)
		if err != nil {
			return Withdrawn{}, err
		}
		out.Bond, err = b.standing(ctx, tx.Q, who.Org, Shown)
		return out, err
	})
}

func withdraw(ctx context.Context, tx *db.Tx, who account.Principal, currency string,
	amount money.Nano) (Withdrawn, error) {
	if amount <= 0 {
		return Withdrawn{}, fault.InvalidField("amount", "must be above zero")
	}
	wallet, bond, payable := ledger.Wallet(who.Org, currency), ledger.HostBond(who.Org, currency),
		ledger.HostPayable(who.Org, currency)
	books, err := ledger.Lock(ctx, tx, bond, payable, ledger.HostPending(who.Org, currency), wallet)
	if err != nil {
		return Withdrawn{}, err
	}
	claims, err := claim.Of(ctx, tx.Q, who.Org, currency)
	if err != nil {
		return Withdrawn{}, err
	}
	if err := withdrawable(books, who.Org, currency, claims).allows(amount); err != nil {
		return Withdrawn{}, err
	}
	in, err := Deposited(ctx, tx.Q, who.Org, currency)
	if err != nil {
		return Withdrawn{}, err
	}
	out := Withdrawn{ToWallet: min(amount, in)}
	out.ToPayable = amount - out.ToWallet
	e := ledger.Entry{
		Kind: "bond_withdraw",
		Key:  "bond_withdraw:" + id.New[id.LedgerTx]().String(),
		Ref:  who.Org.String(),
		Memo: "out of the bond",
	}
	if out.ToWallet > 0 {
		if err := tx.Q.TakeBondDeposited(ctx, out.ToWallet, who.Org, currency); err != nil {
			return Withdrawn{}, fmt.Errorf("take from the bond of %s: %w", who.Org, err)
		}
		e.Transfers = append(e.Transfers, ledger.Transfer{Debit: bond, Credit: wallet, Amount: out.ToWallet})
	}
	if out.ToPayable > 0 {
		e.Transfers = append(e.Transfers, ledger.Transfer{Debit: bond, Credit: payable, Amount: out.ToPayable})
	}
	if _, err := books.Post(ctx, e); err != nil {
		return Withdrawn{}, err
	}
	return out, audit.Record(ctx, tx, who.Event("bond.withdraw", who.Org.String(), map[string]any{
		"amount": amount.String(), "to_wallet": out.ToWallet.String(), "to_payable": out.ToPayable.String()}))
}
