package bond

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/text"
)

// Post books what standby and relief have come to beyond what is booked already. leases are those that the amounts of
// due name by index. All amounts are sums since the beginning, so calling it again, or with a part of the facts of an
// earlier call, changes nothing: nothing is ever taken back. Call it in a separate transaction; the caller holds the
// cluster's lock.
func Post(ctx context.Context, tx *db.Tx, cluster id.Cluster, leases []Frozen, due fairness.Money) error {
	s := &posting{cluster: cluster, leases: leases}
	if err := s.compare(ctx, tx.Q, due); err != nil {
		return err
	}
	if len(s.accounts) == 0 {
		return nil
	}
	books, err := ledger.Lock(ctx, tx, s.accounts...)
	if err != nil {
		return err
	}
	for _, x := range s.standby {
		if err := s.payStandby(ctx, tx, books, x); err != nil {
			return fmt.Errorf("standby of %s from %s: %w", leases[x.due.Victim].Lease, leases[x.due.Culprit].Lease, err)
		}
	}
	for _, x := range s.relief {
		if err := s.payRelief(ctx, tx, books, x); err != nil {
			return fmt.Errorf("relief of %s: %w", leases[x.victim].Lease, err)
		}
	}
	return nil
}

// posting is what has grown since the last time.
type posting struct {
	cluster  id.Cluster
	leases   []Frozen
	standby  []standbyDue
	relief   []reliefDue
	accounts []ledger.Account
}

type standbyDue struct {
	due          fairness.Standby
	posted, host money.Nano // before
}

type reliefDue struct {
	victim int
	ms     int64
	total  money.Nano
	posted money.Nano // before
}

type pair struct{ victim, culprit id.Lease }

func (s *posting) compare(ctx context.Context, q *dbq.Queries, due fairness.Money) error {
	rows, err := q.StandbyOfCluster(ctx, s.cluster)
	if err != nil {
		return fmt.Errorf("read standby of %s: %w", s.cluster, err)
	}
	reliefs, err := q.ReliefOfCluster(ctx, s.cluster)
	if err != nil {
		return fmt.Errorf("read relief of %s: %w", s.cluster, err)
	}
	before := map[pair]dbq.Standby{}
	for _, r := range rows {
		before[pair{r.Victim, r.Culprit}] = r
	}
	for _, d := range due.Standby {
		v, c := s.leases[d.Victim], s.leases[d.Culprit]
		was := before[pair{v.Lease, c.Lease}]
		if d.Paid > was.Posted && c.Open {
			s.standby = append(s.standby, standbyDue{d, was.Posted, was.HostPosted})
			s.accounts = append(s.accounts, ledger.BondHold(c.Operator, c.Lease, c.Currency),
				ledger.HostPending(v.Operator, v.Currency), ledger.Fee(v.Currency))
		}
	}
	had := map[id.Lease]dbq.StandbyRelief{}
	for _, r := range reliefs {
		had[r.Victim] = r
	}
	for v, r := range due.Relief {
		l := s.leases[v]
		was, ms := had[l.Lease], r.UndecidedMS+r.PlatformMS
		if r.Paid() > was.HostPosted || ms > was.Ms { // time beyond what relief can pay is kept too
			s.relief = append(s.relief, reliefDue{v, ms, max(r.Paid(), was.HostPosted), was.HostPosted})
			s.accounts = append(s.accounts, ledger.StandbyRelief(l.Currency), ledger.HostPending(l.Operator, l.Currency))
		}
	}
	return nil
}

func (s *posting) payStandby(ctx context.Context, tx *db.Tx, books *ledger.Locked, x standbyDue) error {
	v, c := s.leases[x.due.Victim], s.leases[x.due.Culprit]
	hold := ledger.BondHold(c.Operator, c.Lease, c.Currency)
	paid := min(x.due.Paid, x.posted+books.Balance(hold))
	host := money.Share(paid, v.SharePPM)
	more, toHost := paid-x.posted, host-x.host
	if more <= 0 || toHost < 0 || toHost > more {
		return nil
	}
	e := ledger.Entry{
		Kind: "standby", Key: fmt.Sprintf("standby:%s:%s:%d", v.Lease, c.Lease, int64(paid)), Ref: s.cluster.String(),
		Memo: fmt.Sprintf("node %d stood by %s for node %d", v.Rank,
			text.Duration(time.Duration(x.due.MS)*time.Millisecond), c.Rank),
	}
	if toHost > 0 {
		e.Transfers = append(e.Transfers, ledger.Transfer{
			Debit:  hold,
			Credit: ledger.HostPending(v.Operator, v.Currency),
			Amount: toHost,
		})
	}
	if fee := more - toHost; fee > 0 {
		e.Transfers = append(e.Transfers, ledger.Transfer{Debit: hold, Credit: ledger.Fee(v.Currency), Amount: fee})
	}
	if err := postNew(ctx, books, e); err != nil {
		return err
	}
	num := new(big.Int).Mul(big.NewInt(int64(v.StandbyRate)), big.NewInt(x.due.MS))
	return tx.Q.SetStandby(ctx, dbq.SetStandbyParams{Victim: v.Lease, Culprit: c.Lease, ClusterID: s.cluster, Ms: x.due.MS,
		Numerator: pgtype.Numeric{Int: num, Valid: true}, Posted: paid, HostPosted: host})
}

func (s *posting) payRelief(ctx context.Context, tx *db.Tx, books *ledger.Locked, x reliefDue) error {
	l := s.leases[x.victim]
	if x.total > x.posted {
		err := postNew(ctx, books, ledger.Entry{
			Kind: "relief",
			Key:  fmt.Sprintf("relief:%s:%s:%d", s.cluster, l.Lease, int64(x.total)),
			Ref:  s.cluster.String(),
			Memo: fmt.Sprintf("node %d stood by %s, and no host is to blame", l.Rank,
				text.Duration(time.Duration(x.ms)*time.Millisecond)),
			Transfers: []ledger.Transfer{{
				Debit:  ledger.StandbyRelief(l.Currency),
				Credit: ledger.HostPending(l.Operator, l.Currency),
				Amount: x.total - x.posted,
			}},
		})
		if err != nil {
			return err
		}
	}
	return tx.Q.SetRelief(ctx, dbq.SetReliefParams{Victim: l.Lease, ClusterID: s.cluster, Ms: x.ms, HostPosted: x.total})
}

// postNew books an entry that cannot be in the ledger, because its row does not have it.
func postNew(ctx context.Context, books *ledger.Locked, e ledger.Entry) error {
	booked, err := books.Post(ctx, e)
	if err == nil && !booked {
		err = fmt.Errorf("%s is in the ledger but not on its row", e.Key)
	}
	return err
}
