package bond

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fairness"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/ledger"
	"github.com/musterhq/muster/internal/money"
)

// Standing is an operator's bond as the operator sees it.
type Standing struct {
	Currency    string
	Free        money.Nano // not reserved
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
type Reserve struct {
	Lease    id.Lease   `json:"lease_id"`
	Cluster  id.Cluster `json:"cluster_id"`
	Host     id.Host    `json:"host_id"`
	HostName string     `json:"host_name"`
	Rank     int        `json:"rank"`
	Liable   money.Nano `json:"liable_for" doc:"at most, at a time: 300 s of standby of the other operators' ranks"`
	Left     money.Nano `json:"reserved" doc:"of your bond now"`
	Since    time.Time  `json:"since"`
	Ended    *time.Time `json:"ended_at" doc:"null while the lease lives; what is reserved is released once its cluster is settled"`
}

// StandbyRow is what one lease was paid for standing by, or what its bond paid.
type StandbyRow struct {
	Cluster     id.Cluster `json:"cluster_id"`
	HostName    string     `json:"host_name" doc:"your host"`
	Received    bool       `json:"received" doc:"true: your host stood by; false: it failed, and your bond paid"`
	VictimRank  int        `json:"victim_rank" doc:"the rank that stood by"`
	CulpritRank int        `json:"culprit_rank" doc:"the rank that failed"`
	Millis      int64      `json:"standby_ms"`
	Amount      money.Nano `json:"amount" doc:"from the failing host's bond, the platform's fee included"`
	HostPart    money.Nano `json:"host_part" doc:"of it, earned by the host that stood by"`
	At          time.Time  `json:"at"`
}

// ReliefRow is what one lease was paid by the platform for standing by while no host was to blame.
type ReliefRow struct {
	Cluster  id.Cluster `json:"cluster_id"`
	HostName string     `json:"host_name"`
	Rank     int        `json:"rank"`
	Millis   int64      `json:"standby_ms"`
	Amount   money.Nano `json:"amount"`
	At       time.Time  `json:"at"`
}

// HostLimit is the most that one lease of a host may be liable for.
type HostLimit struct {
	Host  id.Host    `json:"host_id"`
	Limit money.Nano `json:"gang_liability_max"`
}

// Of returns an operator's standing, with at most limit entries of each kind.
func Of(ctx context.Context, q *dbq.Queries, org id.Org, currency string, limit int) (Standing, error) {
	s := Standing{Currency: currency, Leases: []Reserve{}, Standby: []StandbyRow{}, Relief: []ReliefRow{}, Hosts: []HostLimit{}}
	var err error
	if s.Free, err = ledger.Balance(ctx, q, ledger.HostBond(org, currency)); err != nil {
		return s, err
	}
	held, err := q.BondHeld(ctx, org, currency)
	if err != nil {
		return s, fmt.Errorf("bond: reserved by %s: %w", org, err)
	}
	s.Reserved = money.Nano(held)
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

func (s *Standing) lists(ctx context.Context, q *dbq.Queries, org id.Org, limit int) error {
	leases, err := q.LeaseBondsOfOrg(ctx, org, s.Currency, int32(limit))
	if err != nil {
		return fmt.Errorf("bond: leases of %s: %w", org, err)
	}
	for _, r := range leases {
		s.Leases = append(s.Leases, Reserve{Lease: r.LeaseID, Cluster: r.ClusterID, Host: r.HostID, HostName: r.HostName, Rank: int(r.Rank),
			Liable: r.Amount, Left: money.Nano(r.Held), Since: r.CreatedAt, Ended: r.EndedAt})
	}
	standby, err := q.StandbyOfOrg(ctx, org, s.Currency, int32(limit))
	if err != nil {
		return fmt.Errorf("bond: standby of %s: %w", org, err)
	}
	for _, r := range standby {
		s.Standby = append(s.Standby, StandbyRow{Cluster: r.ClusterID, HostName: r.HostName, Received: r.Received, VictimRank: int(r.VictimRank),
			CulpritRank: int(r.CulpritRank), Millis: r.Ms, Amount: r.Posted, HostPart: r.HostPosted, At: r.PostedAt})
	}
	relief, err := q.ReliefOfOrg(ctx, org, s.Currency, int32(limit))
	if err != nil {
		return fmt.Errorf("bond: relief of %s: %w", org, err)
	}
	for _, r := range relief {
		s.Relief = append(s.Relief, ReliefRow{r.ClusterID, r.HostName, int(r.Rank), r.Ms, r.HostPosted, r.PostedAt})
	}
	limits, err := q.HostLiabilities(ctx, org)
	if err != nil {
		return fmt.Errorf("bond: limits of %s: %w", org, err)
	}
	for _, r := range limits {
		s.Hosts = append(s.Hosts, HostLimit{r.HostID, r.LiabilityMax})
	}
	return nil
}

// LiabilityOf is what a lease would be liable for in a gang of so many nodes of other operators' hosts beside it, each at a
// rate per hour.
func LiabilityOf(nodes int, rate money.Micro) money.Nano {
	return money.CostCeil(rate*money.Micro(max(0, nodes-1)), fairness.BondTime.Milliseconds())
}

// Suspension is time of a cluster that its renter did not pay for, and why.
type Suspension struct {
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Class    string    `json:"class" enum:"platform,proof,silence,undecided" doc:"platform: we could not hear the hosts. proof: the culprits did not prove that they were up. silence: two ranks did not hear each other, and the culprits' reports were missing or late. undecided: two ranks did not hear each other, and nothing decides between them"`
	Culprits []int     `json:"culprit_ranks" doc:"ranks whose bonds pay those that stood by; empty: nobody is to blame"`
}

// Suspensions returns the decided suspensions of a cluster in which the organisation has or had a host, in order of time.
// Fault: NotFound for another cluster.
func Suspensions(ctx context.Context, q *dbq.Queries, org id.Org, cluster id.Cluster) ([]Suspension, error) {
	leases, err := OfCluster(ctx, q, cluster)
	if err != nil {
		return nil, err
	}
	ranks, mine := map[[16]byte]int{}, false
	for _, l := range leases {
		ranks[l.Lease.UUID()] = l.Rank
		mine = mine || l.Operator == org
	}
	if !mine {
		return nil, fault.New(fault.NotFound, "no gang with a host of yours has this id")
	}
	rows, err := q.SuspensionsOfCluster(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("bond: suspensions of %s: %w", cluster, err)
	}
	out := make([]Suspension, len(rows))
	for i, r := range rows {
		out[i] = Suspension{From: time.UnixMilli(r.FromMs).UTC(), To: time.UnixMilli(r.ToMs).UTC(), Class: r.Class, Culprits: []int{}}
		for _, c := range r.Culprits {
			if rank, ok := ranks[c.Bytes]; ok {
				out[i].Culprits = append(out[i].Culprits, rank)
			}
		}
	}
	return out, nil
}
