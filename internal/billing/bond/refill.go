package bond

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
)

// Frozen is what was frozen for a lease of a gang when it was rented.
type Frozen struct {
	Lease       id.Lease
	Rank        int
	Host        id.Host
	HostName    string
	Operator    id.Org
	Currency    string
	StandbyRate money.Micro
	SharePPM    int64
	Amount      money.Nano // what it is liable for at a time
	Reserved    money.Nano // for it since the beginning, with what its reserve was refilled by
	Live        bool       // the lease has not ended
	Settled     bool       // its charge cannot change any more
	Open        bool       // what is reserved for it was not released yet
}

// OfCluster returns what was frozen for the leases of a cluster, by lease id: nothing of a cluster that is no gang.
func OfCluster(ctx context.Context, q *dbq.Queries, cluster id.Cluster) ([]Frozen, error) {
	rows, err := q.LeaseBonds(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("read leases of %s: %w", cluster, err)
	}
	out := make([]Frozen, len(rows))
	for i, r := range rows {
		out[i] = Frozen{
			Lease:       r.LeaseID,
			Rank:        int(r.Rank),
			Host:        r.HostID,
			HostName:    r.HostName,
			Operator:    r.OrgID,
			Currency:    r.Currency,
			StandbyRate: r.Srate,
			SharePPM:    int64(r.HostSharePpm),
			Amount:      r.Amount,
			Reserved:    r.Reserved,
			Live:        r.EndedAt == nil,
			Settled:     r.SettledAt != nil,
			Open:        r.ReleasedAt == nil,
		}
	}
	return out, nil
}

// Refill moves what is missing from operators' bonds into the reserves of a cluster's live leases, so that each covers
// what its lease is liable for to the other leases that live now. If a bond does not suffice, Refill moves what there
// is and notifies the operator, once until the bond suffices again. Call it whenever the cluster is extended, in a
// separate transaction; the caller holds the cluster's lock. If nothing is missing it locks nothing.
func Refill(ctx context.Context, tx *db.Tx, cluster id.Cluster) error {
	rows, err := tx.Q.LeaseBonds(ctx, cluster)
	if err != nil {
		return fmt.Errorf("read leases of %s: %w", cluster, err)
	}
	var live []dbq.LeaseBondsRow
	var gang []fairness.Lease
	for _, r := range rows {
		if r.EndedAt == nil && r.ReleasedAt == nil {
			live, gang = append(live, r), append(gang, fairness.Lease{Operator: r.OrgID, StandbyRate: r.Srate})
		}
	}
	want := map[id.Lease]money.Nano{}
	short := false
	for i, r := range live {
		if r.Amount == 0 {
			continue // taken without a bond
		}
		want[r.LeaseID] = fairness.Bond(gang, i, fairness.BondTime)
		has, err := ledger.Balance(ctx, tx.Q, ledger.BondHold(r.OrgID, r.LeaseID, r.Currency))
		if err != nil {
			return err
		}
		short = short || has < want[r.LeaseID]
	}
	if !short {
		return nil
	}
	var accounts []ledger.Account
	for _, r := range live {
		if want[r.LeaseID] > 0 {
			accounts = append(accounts, ledger.HostBond(r.OrgID, r.Currency), ledger.BondHold(r.OrgID, r.LeaseID, r.Currency))
		}
	}
	books, err := ledger.Lock(ctx, tx, accounts...)
	if err != nil {
		return err
	}
	for _, r := range live {
		if want[r.LeaseID] > 0 {
			if err := refill(ctx, tx, books, r, want[r.LeaseID]); err != nil {
				return fmt.Errorf("refill for %s: %w", r.LeaseID, err)
			}
		}
	}
	return nil
}

func refill(ctx context.Context, tx *db.Tx, books *ledger.Locked, r dbq.LeaseBondsRow, want money.Nano) error {
	missing := want - books.Balance(ledger.BondHold(r.OrgID, r.LeaseID, r.Currency))
	move := max(0, min(missing, books.Spendable(ledger.HostBond(r.OrgID, r.Currency))))
	told := missing > move
	if move == 0 && told == r.ShortTold {
		return nil
	}
	if move > 0 {
		if _, err := books.Post(ctx, reserve(r.OrgID, r.LeaseID, r.ClusterID, r.Currency, move,
			r.Reserved+move)); err != nil {
			return err
		}
	}
	if err := tx.Q.SetLeaseBondReserved(ctx, dbq.SetLeaseBondReservedParams{
		LeaseID:   r.LeaseID,
		Amount:    want,
		Reserved:  r.Reserved + move,
		ShortTold: told,
	}); err != nil {
		return err
	}
	if !told || r.ShortTold {
		return nil
	}
	_, err := notify.Add(ctx, tx, notify.Notice{
		Org:      r.OrgID,
		Severity: notify.Warn,
		Object:   r.HostID.String(),
		Key:      fmt.Sprintf("bond_short:%s:%d", r.LeaseID, int64(r.Reserved+move)),
		Title:    fmt.Sprintf("The bond of %s is %s %s short", r.HostName, (missing - move).Plain(), r.Currency),
		Body: fmt.Sprintf("Rank %d of cluster %s is liable for %s, and your bond could not fill its reserve up. When "+
			"little is left, the next failure of the host ends "+
			"its part in the cluster at once. Deposit more: muster host bond deposit.", r.Rank, r.ClusterID, want.Plain()),
	})
	return err
}

// Low reports whether so little is left in the reserve of a lease of a gang that its host's next failure is final: less
// than what 130 s of standby of the other operators' live leases cost. It is false for a lease that no one is liable
// for.
func Low(ctx context.Context, q *dbq.Queries, cluster id.Cluster, lease id.Lease) (bool, error) {
	rows, err := q.LeaseBonds(ctx, cluster)
	if err != nil {
		return false, fmt.Errorf("read leases of %s: %w", cluster, err)
	}
	var gang []fairness.Lease
	at, mine := -1, dbq.LeaseBondsRow{}
	for _, r := range rows {
		if r.LeaseID == lease {
			at, mine = len(gang), r
		}
		if r.EndedAt == nil || r.LeaseID == lease {
			gang = append(gang, fairness.Lease{Operator: r.OrgID, StandbyRate: r.Srate})
		}
	}
	if at < 0 || mine.Amount == 0 {
		return false, nil
	}
	has, err := ledger.Balance(ctx, q, ledger.BondHold(mine.OrgID, lease, mine.Currency))
	return has < fairness.Bond(gang, at, fairness.BondFloor), err
}

// Release gives what is reserved for a cluster's leases back to their operators' bonds. Call it once every lease is
// settled and every standstill of the cluster is decided and posted, in a separate transaction; the caller holds the
// cluster's lock. Calling it again changes nothing.
func Release(ctx context.Context, tx *db.Tx, cluster id.Cluster) error {
	rows, err := tx.Q.LeaseBonds(ctx, cluster)
	if err != nil {
		return fmt.Errorf("read leases of %s: %w", cluster, err)
	}
	var accounts []ledger.Account
	var open []dbq.LeaseBondsRow
	for _, r := range rows {
		switch {
		case r.ReleasedAt != nil:
		case r.SettledAt == nil:
			return fmt.Errorf("lease %s of %s is not settled", r.LeaseID, cluster)
		default:
			open = append(open, r)
			if r.Reserved > 0 {
				accounts = append(accounts, ledger.HostBond(r.OrgID, r.Currency), ledger.BondHold(r.OrgID, r.LeaseID, r.Currency))
			}
		}
	}
	if len(open) == 0 {
		return nil
	}
	books, err := ledger.Lock(ctx, tx, accounts...)
	if err != nil {
		return err
	}
	for _, r := range open {
		hold := ledger.BondHold(r.OrgID, r.LeaseID, r.Currency)
		var left money.Nano
		if r.Reserved > 0 {
			left = books.Balance(hold)
		}
		if left > 0 {
			if _, err := books.Post(ctx, ledger.Entry{
				Kind: "bond_release",
				Key:  "bond_release:" + r.LeaseID.String(),
				Ref:  r.ClusterID.String(),
				Memo: "no longer reserved",
				Transfers: []ledger.Transfer{{
					Debit:  hold,
					Credit: ledger.HostBond(r.OrgID, r.Currency),
					Amount: left,
				}},
			}); err != nil {
				return fmt.Errorf("release of %s: %w", r.LeaseID, err)
			}
		}
		if r.Reserved > 0 {
			if err := books.Retire(ctx, hold); err != nil {
				return err
			}
		}
		if err := tx.Q.ReleaseLeaseBond(ctx, left, r.LeaseID); err != nil {
			return fmt.Errorf("release bond of %s: %w", r.LeaseID, err)
		}
	}
	return nil
}
