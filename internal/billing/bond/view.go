package bond

import (
	"context"
	"fmt"
	"slices"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/claim"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Standing is an operator's bond as the operator sees it.
type Standing struct {
	Currency    string
	Free        money.Nano // not reserved
	Claimed     money.Nano // of it, held back for disputes and reviews
	Reserved    money.Nano // for leases
	Deposited   money.Nano // of both, out of the wallet: goes back there when it is withdrawn
	Depositable money.Nano // could be moved from the wallet now
	Terms       Terms
	Leases      []Reserve    // newest first
	Standby     []StandbyRow // newest first
	Relief      []ReliefRow  // newest first
	Hosts       []HostLimit
}

// Reserve is what is reserved for one lease.
type Reserve = client.BondLease

// StandbyRow is what one lease was paid for standing by, or what its bond paid.
type StandbyRow = client.BondStandby

// ReliefRow is what one lease was paid by the platform for standing by while no host was to blame.
type ReliefRow = client.BondRelief

// HostLimit is the most that one lease of a host may be liable for.
type HostLimit = client.BondHostLimit

// Shown is how many rows of each list a Standing has that a change of the bond returns.
const Shown = 200

// Standing returns the bond of the caller's organisation, with at most limit rows of each list.
func (b *Bonds) Standing(ctx context.Context, who account.Principal, limit int) (Standing, error) {
	return b.standing(ctx, b.d.Q, who.Org, limit)
}

func (b *Bonds) standing(ctx context.Context, q *dbq.Queries, org id.Org, limit int) (Standing, error) {
	currency := b.currency
	s := Standing{
		Currency: currency,
		Leases:   []Reserve{},
		Standby:  []StandbyRow{},
		Relief:   []ReliefRow{},
		Hosts:    []HostLimit{},
	}
	var err error
	if s.Free, err = ledger.Balance(ctx, q, ledger.HostBond(org, currency)); err != nil {
		return s, err
	}
	if s.Reserved, err = Held(ctx, q, org, currency); err != nil {
		return s, err
	}
	if s.Claimed, err = claimed(ctx, q, org, currency, s.Free); err != nil {
		return s, err
	}
	if s.Deposited, err = Deposited(ctx, q, org, currency); err != nil {
		return s, err
	}
	if s.Depositable, err = Depositable(ctx, q, org, currency); err != nil {
		return s, err
	}
	if s.Terms, err = TermsOf(ctx, q, org); err != nil {
		return s, err
	}
	return s, s.lists(ctx, q, org, limit)
}

// claimed returns what Withdraw would hold back now of a bond of which so much is free.
func claimed(ctx context.Context, q *dbq.Queries, org id.Org, currency string, free money.Nano) (money.Nano, error) {
	if free == 0 {
		return 0, nil
	}
	left, err := ledger.Spendable(ctx, q, ledger.HostBond(org, currency))
	if err != nil {
		return 0, err
	}
	pending, err := ledger.Balance(ctx, q, ledger.HostPending(org, currency))
	if err != nil {
		return 0, err
	}
	payable, err := ledger.Balance(ctx, q, ledger.HostPayable(org, currency))
	if err != nil {
		return 0, err
	}
	c, err := claim.Of(ctx, q, org, currency)
	return free - max(0, left-c.OnBond(pending, payable)), err
}

// lists fills in the rows of each list, at most limit, and the limits of the org's hosts.
func (s *Standing) lists(ctx context.Context, q *dbq.Queries, org id.Org, limit int) error {
	leases, err := q.LeaseBondsOfOrg(ctx, org, s.Currency, int32(limit))
	if err != nil {
		return fmt.Errorf("read leases of %s: %w", org, err)
	}
	for _, r := range leases {
		s.Leases = append(s.Leases, Reserve{
			Lease:    r.LeaseID,
			Cluster:  r.ClusterID,
			Host:     r.HostID,
			HostName: r.HostName,
			Rank:     int(r.Rank),
			Liable:   r.Amount,
			Left:     money.Nano(r.Held),
			Since:    r.CreatedAt,
			Ended:    r.EndedAt,
		})
	}
	if err := s.paid(ctx, q, org, limit); err != nil {
		return err
	}
	if err := s.reasons(ctx, q, org); err != nil {
		return err
	}
	limits, err := q.HostLiabilities(ctx, org)
	if err != nil {
		return fmt.Errorf("read limits of %s: %w", org, err)
	}
	for _, r := range limits {
		s.Hosts = append(s.Hosts, HostLimit{Host: r.HostID, Limit: r.LiabilityMax})
	}
	return nil
}

// paid fills in the standby and relief that were paid, without reasons.
func (s *Standing) paid(ctx context.Context, q *dbq.Queries, org id.Org, limit int) error {
	standby, err := q.StandbyOfOrg(ctx, org, s.Currency, int32(limit))
	if err != nil {
		return fmt.Errorf("read standby of %s: %w", org, err)
	}
	for _, r := range standby {
		s.Standby = append(s.Standby, StandbyRow{
			Cluster:     r.ClusterID,
			HostName:    r.HostName,
			Received:    r.Received,
			VictimRank:  int(r.VictimRank),
			CulpritRank: int(r.CulpritRank),
			Millis:      r.Ms,
			Amount:      r.Posted,
			HostPart:    r.HostPosted,
			At:          r.PostedAt,
		})
	}
	relief, err := q.ReliefOfOrg(ctx, org, s.Currency, int32(limit))
	if err != nil {
		return fmt.Errorf("read relief of %s: %w", org, err)
	}
	for _, r := range relief {
		s.Relief = append(s.Relief, ReliefRow{
			Cluster:  r.ClusterID,
			HostName: r.HostName,
			Rank:     int(r.Rank),
			Millis:   r.Ms,
			Amount:   r.HostPosted,
			At:       r.PostedAt,
		})
	}
	return nil
}

// reasons adds to what was paid why it was.
func (s *Standing) reasons(ctx context.Context, q *dbq.Queries, org id.Org) error {
	var clusters []id.Cluster
	for _, r := range s.Standby {
		clusters = append(clusters, r.Cluster)
	}
	for _, r := range s.Relief {
		clusters = append(clusters, r.Cluster)
	}
	slices.SortFunc(clusters, id.Cluster.Compare)
	clusters = slices.Compact(clusters)
	names, err := HostNames(ctx, q, org, clusters)
	if err != nil {
		return err
	}
	all, err := Suspended(ctx, q, clusters, names)
	if err != nil {
		return err
	}
	for i := range s.Standby {
		r := &s.Standby[i]
		r.Why = why(all[r.Cluster], func(x Suspension) bool { return slices.Contains(x.Culprits, r.CulpritRank) })
	}
	for i := range s.Relief {
		r := &s.Relief[i]
		r.Why = why(all[r.Cluster], func(x Suspension) bool { return len(x.Culprits) == 0 })
	}
	return nil
}

// why returns the sentences of the suspensions that fit.
func why(all []Suspension, fits func(Suspension) bool) []string {
	out := []string{}
	for _, x := range all {
		if fits(x) {
			out = append(out, fmt.Sprintf("%s, %.1f s: %s", x.From.Format("2 January 15:04:05 UTC"), float64(x.Millis())/1000,
				x.Why))
		}
	}
	return out
}

// LiabilityOf returns what a lease would be liable for in a gang with a number of nodes on other operators' hosts, each
// at a rate per hour.
func LiabilityOf(nodes int, rate money.Micro) money.Nano {
	return money.CostCeil(rate*money.Micro(max(0, nodes-1)), fairness.BondTime.Milliseconds())
}
