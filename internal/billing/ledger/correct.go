package ledger

import (
	"context"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Booked is an entry as it stands in the ledger.
type Booked struct {
	ID id.LedgerTx
	Entry
	At string // RFC 3339, to the microsecond
}

// Search finds entries by id, key or what they belong to (a prefixed id; of an org: all that moved its money), newest
// first, those older than before (zero: from the newest).
func Search(ctx context.Context, q *dbq.Queries, text string, before id.LedgerTx, limit int) ([]Booked, error) {
	ids, err := search(ctx, q, text, before, limit)
	if err != nil {
		return nil, fmt.Errorf("search the ledger: %w", err)
	}
	out, err := booked(ctx, q, ids)
	if err != nil {
		return nil, fmt.Errorf("search the ledger: %w", err)
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out, nil
}

func search(ctx context.Context, q *dbq.Queries, text string, before id.LedgerTx, limit int) ([]id.LedgerTx, error) {
	if org, err := id.Parse[id.Org](text); err == nil {
		return q.SearchLedgerTxsOfOrg(ctx, int32(limit), org, raw(before))
	}
	asked, _ := id.Parse[id.LedgerTx](text) // zero when it is something else: no entry has it
	return q.SearchLedgerTxs(ctx, dbq.SearchLedgerTxsParams{
		ID:      asked,
		Text:    text,
		Before:  raw(before),
		MaxRows: int32(limit),
	})
}

// booked reads entries, oldest first.
func booked(ctx context.Context, q *dbq.Queries, ids []id.LedgerTx) ([]Booked, error) {
	rows, err := q.LedgerTxs(ctx, id.UUIDs(ids...))
	if err != nil {
		return nil, err
	}
	transfers, err := q.LedgerTransfersOf(ctx, id.UUIDs(ids...))
	if err != nil {
		return nil, err
	}
	of := map[id.LedgerTx][]Transfer{}
	for _, f := range transfers {
		side := func(kind string, owner pgtype.UUID, org id.Org) Account {
			return Account{Kind: Kind(kind), Owner: owner.Bytes, Org: org, Currency: f.Currency}
		}
		of[f.TxID] = append(of[f.TxID], Transfer{side(f.DebitKind, f.DebitOwner, f.DebitOrg),
			side(f.CreditKind, f.CreditOwner, f.CreditOrg), f.Amount})
	}
	out := make([]Booked, len(rows))
	for i, r := range rows {
		out[i] = Booked{r.ID, Entry{
			Kind:      r.Kind,
			Key:       r.Key,
			Memo:      r.Memo,
			Ref:       r.Ref,
			Corrects:  r.Corrects,
			Transfers: of[r.ID],
		},
			r.CreatedAt.UTC().Format("2006-01-02T15:04:05.000000Z")}
	}
	return out, nil
}

// LockCorrections serialises transactions that give back charges for the same cluster, or pay relief from the fee on
// them, until tx ends. ref is the cluster's id as entries carry it. Call it before the lock of any account, and after
// those of clusters and meters.
func LockCorrections(ctx context.Context, tx *db.Tx, ref string) error {
	if err := tx.Q.LockLedgerCorrections(ctx, "ref:"+ref); err != nil {
		return fmt.Errorf("lock corrections of %s: %w", ref, err)
	}
	return nil
}

// FeeBack returns how much of part, which the platform received as its fee on a cluster's usage, it may still give
// back: what it paid to the cluster's hosts as relief came from the same fee. The cluster's corrections are locked.
func FeeBack(ctx context.Context, q *dbq.Queries, cluster id.Cluster, part money.Nano) (money.Nano, error) {
	reliefs, err := q.ReliefOfCluster(ctx, cluster)
	if err != nil {
		return 0, fmt.Errorf("read relief of %s: %w", cluster, err)
	}
	if len(reliefs) == 0 {
		return part, nil
	}
	var relief money.Nano
	for _, r := range reliefs {
		relief += r.HostPosted
	}
	fee, err := q.ClusterUsageFee(ctx, cluster, cluster.String())
	if err != nil {
		return 0, fmt.Errorf("read fee on %s: %w", cluster, err)
	}
	return fairness.FeeBack(part, money.Nano(fee), relief), nil
}

// ChargesLeft returns what is left of the charges for a lease that were booked at since or later: what they were less
// what was given back of them, by the kind of account that got it. ref is the cluster that the charges belong to.
// Corrections of the kind except are left out; "" leaves out none.
func ChargesLeft(ctx context.Context, q *dbq.Queries, ref, lease string, since time.Time,
	except string) (map[Kind]money.Nano, error) {
	prefix := "usage:" + lease + ":"
	charged, err := q.LedgerChargedSince(ctx, ref, prefix, since)
	if err != nil {
		return nil, fmt.Errorf("read charges for %s: %w", lease, err)
	}
	left := map[Kind]money.Nano{}
	for _, c := range charged {
		left[Kind(c.Kind)] += money.Nano(c.Amount)
	}
	corrections, err := q.LedgerCorrectionsOfRef(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("read corrections of %s: %w", lease, err)
	}
	var ids []id.LedgerTx
	for _, c := range corrections {
		if c.Kind != except && strings.HasPrefix(c.Corrected, prefix) && !c.CorrectedAt.Before(since) {
			ids = append(ids, c.ID)
		}
	}
	entries, err := booked(ctx, q, ids)
	if err != nil {
		return nil, fmt.Errorf("read corrections of %s: %w", lease, err)
	}
	for _, e := range entries {
		for _, t := range e.Transfers {
			left[t.Debit.Kind] -= t.Amount
		}
	}
	return left, nil
}

// chargedFor returns the lease that a charge is for, and its cluster. Faults: Conflict for another entry, NotFound.
func chargedFor(ctx context.Context, q *dbq.Queries, charge id.LedgerTx) (lease, ref string, err error) {
	rows, err := q.LedgerTxs(ctx, id.UUIDs(charge))
	switch {
	case err != nil:
		return "", "", fmt.Errorf("compensate: %w", err)
	case len(rows) == 0:
		return "", "", fault.New(fault.NotFound, "entry not found")
	case rows[0].Kind != "usage":
		return "", "", fault.New(fault.Conflict, "only charges for usage are compensated; this entry is of kind %s",
			rows[0].Kind)
	}
	if parts := strings.Split(rows[0].Key, ":"); len(parts) == 3 {
		lease = parts[1]
	}
	return lease, rows[0].Ref, nil
}

// Compensate gives a charge back to its payer: amount of it, or with zero all that was not given back before, from
// those who received it, each in proportion. What was held when it was charged goes back to the wallet. All that
// corrects one charge never exceeds it, all that corrects the charges for one lease, service credits among them, never
// exceeds those, and a fee that the platform paid to the cluster's hosts as relief is not given back (see FeeBack):
// fault.Invalid has the amount that is left. Only charges for usage are compensated here; another entry is
// fault.Conflict, an unknown one fault.NotFound.
func Compensate(ctx context.Context, tx *db.Tx, charge id.LedgerTx, amount money.Nano, reason string) (Entry, error) {
	lease, ref, err := chargedFor(ctx, tx.Q, charge)
	if err != nil {
		return Entry{}, err
	}
	if err := LockCorrections(ctx, tx, ref); err != nil {
		return Entry{}, err
	}
	leftOfLease, err := ChargesLeft(ctx, tx.Q, ref, lease, time.Time{}, "")
	if err != nil {
		return Entry{}, err
	}
	if cluster, err := id.Parse[id.Cluster](ref); err == nil {
		left, err := FeeBack(ctx, tx.Q, cluster, leftOfLease[KindPlatformFee])
		if err != nil {
			return Entry{}, err
		}
		leftOfLease[KindPlatformFee] = left
	}
	corrections, err := tx.Q.LedgerCorrections(ctx, charge)
	if err != nil {
		return Entry{}, fmt.Errorf("read corrections of charge %s: %w", charge, err)
	}
	all, err := booked(ctx, tx.Q, append(corrections, charge))
	if err != nil {
		return Entry{}, fmt.Errorf("read charge %s: %w", charge, err)
	}
	left, payer := leftOfCharge(all, charge, leftOfLease)
	transfers, err := giveBack(left, payer, amount)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{
		Kind:      "compensation",
		Key:       fmt.Sprintf("compensation:%s:%d", charge, len(corrections)+1),
		Memo:      reason,
		Ref:       ref,
		Corrects:  charge,
		Transfers: transfers,
	}
	if _, err := Post(ctx, tx, e); err != nil {
		return Entry{}, fmt.Errorf("compensate charge %s: %w", charge, err)
	}
	return e, nil
}

// share is what an account still has of a charge.
type share struct {
	of   Account
	left money.Nano
}

// leftOfCharge returns what those who received a charge still have of it, in the order of its transfers, and the wallet
// of its payer. all is the charge and what corrects it. leftOfLease bounds what each kind of account has left, because
// a service credit corrects the lease's last charge for the time of several.
func leftOfCharge(all []Booked, charge id.LedgerTx, leftOfLease map[Kind]money.Nano) (shares []share, payer Account) {
	left := map[accountKey]money.Nano{}
	for _, b := range all {
		for _, t := range b.Transfers {
			if b.ID != charge {
				left[t.Debit.key()] -= t.Amount
				continue
			}
			left[t.Credit.key()] += t.Amount
			shares = append(shares, share{of: t.Credit})
			payer = Wallet(b.Transfers[0].Debit.Org, b.Transfers[0].Debit.Currency)
		}
	}
	for i, s := range shares {
		shares[i].left = max(0, min(left[s.of.key()], leftOfLease[s.of.Kind]))
	}
	return shares, payer
}

// giveBack returns the transfers of amount to the payer, with zero of all that is left, from each account in proportion
// to what it has left. The parts add up to amount: they are differences of cumulative floors. Fault: Invalid.
func giveBack(left []share, payer Account, amount money.Nano) (out []Transfer, err error) {
	var total money.Nano
	for _, s := range left {
		total += s.left
	}
	if amount == 0 {
		amount = total
	}
	if amount <= 0 || amount > total {
		return nil, fault.InvalidField("amount", "must be above zero and at most %s, what is left of the charge",
			total.Plain())
	}
	done, seen := money.Nano(0), money.Nano(0)
	for _, s := range left {
		seen += s.left
		part := new(big.Int).Mul(big.NewInt(int64(amount)), big.NewInt(int64(seen)))
		upTo := money.Nano(part.Div(part, big.NewInt(int64(total))).Int64())
		if n := upTo - done; n > 0 {
			out = append(out, Transfer{Debit: s.of, Credit: payer, Amount: n})
		}
		done = upTo
	}
	return out, nil
}
