package bond

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Stake is what one lease of a gang is rented with.
type Stake struct {
	Lease    id.Lease
	Cluster  id.Cluster
	Host     id.Host
	Operator id.Org
	// StandbyRate is what an hour of the lease's standby is worth.
	StandbyRate money.Micro
	// Amount is what is reserved of the operator's bond: what the lease is liable for at most. 0 = nothing.
	Amount money.Nano
}

// Stakes are those of the leases of a gang that are rented together.
type Stakes struct {
	Currency string
	Leases   []Stake
}

// Accounts returns the accounts that Covered and QueueWrite need locked.
func (s Stakes) Accounts() []ledger.Account {
	var out []ledger.Account
	for _, l := range s.Leases {
		if l.Amount > 0 {
			out = append(out, ledger.HostBond(l.Operator, s.Currency), ledger.BondHold(l.Operator, l.Lease, s.Currency))
		}
	}
	return out
}

// Covered reports whether the locked bonds suffice for all stakes. What disputes claim of a bond does not count.
func (s Stakes) Covered(books *ledger.Locked) bool {
	need := map[id.Org]money.Nano{}
	for _, l := range s.Leases {
		need[l.Operator] += l.Amount
	}
	for org, n := range need {
		if n > 0 && books.Spendable(ledger.HostBond(org, s.Currency)) < n {
			return false
		}
	}
	return true
}

// QueueWrite queues the writes that reserve the stakes and freeze them. The leases exist by then and the accounts are
// locked.
func (s Stakes) QueueWrite(b *pgx.Batch, books *ledger.Locked) error {
	for _, l := range s.Leases {
		if l.Amount > 0 {
			if err := books.QueueWrite(b, reserve(l.Operator, l.Lease, l.Cluster, s.Currency, l.Amount, l.Amount)); err != nil {
				return fmt.Errorf("reserve for %s: %w", l.Lease, err)
			}
		}
		db.Write(b, (*dbq.Queries).InsertLeaseBond, dbq.InsertLeaseBondParams{
			LeaseID:   l.Lease,
			ClusterID: l.Cluster,
			HostID:    l.Host,
			OrgID:     l.Operator,
			Currency:  s.Currency,
			Srate:     l.StandbyRate,
			Amount:    l.Amount,
			Reserved:  l.Amount,
		})
	}
	return nil
}

// reserve moves an amount from the operator's bond into the lease's part of it; upTo is what was reserved for the lease
// in all after it, which only grows: the entry is booked once.
func reserve(org id.Org, lease id.Lease, cluster id.Cluster, currency string, amount, upTo money.Nano) ledger.Entry {
	return ledger.Entry{
		Kind: "bond_reserve",
		Key:  fmt.Sprintf("bond_reserve:%s:%d", lease, int64(upTo)),
		Ref:  cluster.String(),
		Memo: "bond of a lease in a gang",
		Transfers: []ledger.Transfer{{
			Debit:  ledger.HostBond(org, currency),
			Credit: ledger.BondHold(org, lease, currency),
			Amount: amount,
		}},
	}
}
