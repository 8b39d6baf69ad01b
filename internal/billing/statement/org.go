package statement

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// FoundOrg is an organisation as admins see it in a list.
type FoundOrg = client.FoundOrg

// OrgSearch is which orgs to list; zero fields match everything.
type OrgSearch struct {
	Words     string // an org's id, or a part of a name, a legal name or a member's e-mail
	Disputed  bool   // only those with a payment that is disputed now
	Operators bool   // only those that have or had hosts, or a payout account
}

// Orgs lists organisations, newest first, those before the given one (zero: from the newest), at most limit. Only an
// admin sees them; fault: Forbidden.
func (s *Statements) Orgs(ctx context.Context, who account.Principal, f OrgSearch, before id.Org,
	limit int) ([]FoundOrg, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	in := dbq.OrgsFoundParams{
		Currency:  s.currency,
		Before:    pgtype.UUID{Bytes: before.UUID(), Valid: !before.IsZero()},
		Operators: f.Operators,
		Disputed:  f.Disputed,
		MaxRows:   int32(limit),
	}
	words := strings.TrimSpace(f.Words)
	if org, err := id.Parse[id.Org](words); err == nil && !org.IsZero() {
		in.Org = pgtype.UUID{Bytes: org.UUID(), Valid: true}
	} else {
		in.Words = words
	}
	rows, err := s.d.Q.OrgsFound(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("read organisations: %w", err)
	}
	out := make([]FoundOrg, len(rows))
	for i, r := range rows {
		out[i] = FoundOrg{
			ID:        r.ID,
			Name:      r.Name,
			LegalName: r.LegalName,
			Email:     r.Email,
			Verified:  r.Verified,
			Personal:  r.Personal,
			Hosts:     int(r.Hosts),
			Clusters:  int(r.Clusters),
			Available: money.Nano(r.Wallet),
			Held:      money.Nano(r.Held),
			Pending:   money.Nano(r.Pending),
			Payable:   money.Nano(r.Payable),
			Currency:  s.currency,
			CreatedAt: r.CreatedAt,
		}
	}
	return out, nil
}

// rowsPerOrg is how many hosts, clusters and disputes of one org are shown.
const rowsPerOrg = 100

// OrgDetail is one organisation with what belongs to it.
type OrgDetail struct {
	FoundOrg
	Legal       account.Legal
	Members     []Member
	HostList    []OrgHost    // at most 100, retired ones last
	ClusterList []OrgCluster // at most 100, those that run first
	Disputes    []Dispute    // of its payments, at most 100, newest first
}

// Member is a user of an org.
type Member = client.OrgUser

// OrgHost is a host in an org's list.
type OrgHost = client.OrgHost

// OrgCluster is a cluster in an org's list.
type OrgCluster = client.OrgCluster

// Dispute is a payment that its card's owner takes back, or a refund of an invoice that an admin made at Stripe. While
// it is open, hosts are not paid what they earned with it.
type Dispute = client.Dispute

// OneOrg reads one organisation. Only an admin may. Faults: Forbidden, NotFound.
func (s *Statements) OneOrg(ctx context.Context, who account.Principal, org id.Org) (OrgDetail, error) {
	found, err := s.Orgs(ctx, who, OrgSearch{Words: org.String()}, id.Org{}, 1)
	if err != nil {
		return OrgDetail{}, err
	}
	if len(found) == 0 || org.IsZero() {
		return OrgDetail{}, fault.New(fault.NotFound, "organisation not found")
	}
	out := OrgDetail{
		FoundOrg:    found[0],
		Members:     []Member{},
		HostList:    []OrgHost{},
		ClusterList: []OrgCluster{},
		Disputes:    []Dispute{},
	}
	if out.Legal, err = account.LegalOf(ctx, s.d.Q, org); err != nil {
		return out, err
	}
	members, err := s.d.Q.OrgMembers(ctx, org)
	if err != nil {
		return out, fmt.Errorf("read members of %s: %w", org, err)
	}
	for _, m := range members {
		out.Members = append(out.Members, Member{
			User:     m.UserID,
			Email:    m.Email,
			Name:     m.Name,
			Role:     m.Role,
			Verified: m.Verified,
			Admin:    m.Admin,
		})
	}
	hosts, err := s.d.Q.OrgHosts(ctx, org, rowsPerOrg)
	if err != nil {
		return out, fmt.Errorf("read hosts of %s: %w", org, err)
	}
	for _, h := range hosts {
		out.HostList = append(out.HostList, OrgHost{
			ID:         h.ID,
			Name:       h.Name,
			Region:     h.Region,
			State:      h.State,
			Blocked:    h.Blocked,
			Connected:  h.Connected,
			LastSyncAt: h.LastSyncAt,
			GPUs:       int(h.Gpus),
			Leased:     int(h.Leased),
		})
	}
	clusters, err := s.d.Q.OrgClusters(ctx, org, rowsPerOrg)
	if err != nil {
		return out, fmt.Errorf("read clusters of %s: %w", org, err)
	}
	for _, c := range clusters {
		out.ClusterList = append(out.ClusterList, OrgCluster{
			ID:           c.ID,
			Name:         c.Name,
			State:        c.State,
			Reason:       c.Reason,
			Nodes:        int(c.NodeCount),
			GPUs:         int(c.NodeCount * c.GpusPerNode),
			PricePerHour: c.Rate,
			CreatedAt:    c.CreatedAt,
			EndedAt:      c.EndedAt,
		})
	}
	disputes, err := s.d.Q.OrgDisputes(ctx, org, rowsPerOrg)
	if err != nil {
		return out, fmt.Errorf("read disputes of %s: %w", org, err)
	}
	for _, d := range disputes {
		out.Disputes = append(out.Disputes, Dispute{
			ID:        d.ID,
			Kind:      d.Kind,
			TopUp:     d.TopupID,
			Invoice:   d.InvoiceID,
			Amount:    d.Amount,
			SetAside:  d.Held,
			Currency:  d.Currency,
			Reason:    d.Reason,
			State:     d.State,
			CreatedAt: d.CreatedAt,
			ClosedAt:  d.ClosedAt,
		})
	}
	return out, nil
}

// Attention counts what needs an admin now.
type Attention = client.Attention

// Wants counts what needs an admin now. Fault: Forbidden.
func (s *Statements) Wants(ctx context.Context, who account.Principal) (Attention, error) {
	if err := account.RequireStaff(who); err != nil {
		return Attention{}, err
	}
	n, err := s.d.Q.AdminCounts(ctx, s.currency)
	if err != nil {
		return Attention{}, fmt.Errorf("count what waits for admins: %w", err)
	}
	return Attention{
		PayoutFailures: n.PayoutFailures,
		PayoutsStopped: n.PayoutsStopped,
		Reviews:        n.Reviews,
		InReview:       money.Nano(n.InReview),
		Disputes:       n.Disputes,
		Disputed:       money.Nano(n.Disputed),
		InvoicesUnpaid: n.InvoicesUnpaid,
		Frozen:         n.Frozen,
		Quarantined:    n.Quarantined,
		OutboxUnknown:  n.OutboxUnknown,
		MailFailed:     n.MailFailed,
		DeadLetters:    n.DeadLetters,
		Currency:       s.currency,
	}, nil
}

// PlatformTotals is the fleet now and the demand of the last two weeks.
type PlatformTotals = client.PlatformTotals

// PlatformTotals counts the fleet as it is and the demand of the two weeks before now. Fault: Forbidden.
func (s *Statements) PlatformTotals(ctx context.Context, who account.Principal, now time.Time) (PlatformTotals, error) {
	if err := account.RequireStaff(who); err != nil {
		return PlatformTotals{}, err
	}
	week, fortnight := now.AddDate(0, 0, -7), now.AddDate(0, 0, -14)
	n, err := s.d.Q.PlatformTotals(ctx, dbq.PlatformTotalsParams{
		UserWeek:         id.From[id.User](week),
		UserFortnight:    id.From[id.User](fortnight),
		ClusterWeek:      id.From[id.Cluster](week),
		ClusterFortnight: id.From[id.Cluster](fortnight),
	})
	if err != nil {
		return PlatformTotals{}, fmt.Errorf("count the fleet and the demand: %w", err)
	}
	return PlatformTotals{
		Hosts:            n.Hosts,
		HostsConnected:   n.HostsConnected,
		GPUs:             n.Gpus,
		GPUsRented:       n.GpusRented,
		ClustersStarting: n.ClustersStarting,
		ClustersRunning:  n.ClustersRunning,
		SignUps:          n.SignUps,
		SignUpsBefore:    n.SignUpsBefore,
		Rents:            n.Rents,
		RentsBefore:      n.RentsBefore,
		Failed:           n.Failed,
		FailedBefore:     n.FailedBefore,
	}, nil
}

// DayMoney is one day's money, of UTC: "2026-11-22".
type DayMoney struct {
	Day    string
	Amount money.Nano
}

// Flow returns what was paid in and sent to operators since a moment, by the days of UTC; days without any are left
// out.
func (s *Statements) Flow(ctx context.Context, since time.Time) (in, out []DayMoney, err error) {
	paidIn, err := s.d.Q.PaidInByDay(ctx, s.currency, &since)
	if err != nil {
		return nil, nil, fmt.Errorf("read payments by day: %w", err)
	}
	for _, r := range paidIn {
		in = append(in, DayMoney{r.Day, money.Nano(r.Amount)})
	}
	paidOut, err := s.d.Q.PaidOutByDay(ctx, s.currency, &since)
	if err != nil {
		return nil, nil, fmt.Errorf("read payouts by day: %w", err)
	}
	for _, r := range paidOut {
		out = append(out, DayMoney{r.Day, money.Nano(r.Amount)})
	}
	return in, out, nil
}

// OrgNames returns the names of organisations, for pages that list what is theirs.
func (s *Statements) OrgNames(ctx context.Context, orgs []id.Org) (map[id.Org]string, error) {
	ids := make([]pgtype.UUID, len(orgs))
	for i, o := range orgs {
		ids[i] = pgtype.UUID{Bytes: o.UUID(), Valid: true}
	}
	rows, err := s.d.Q.OrgNames(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read names of organisations: %w", err)
	}
	out := make(map[id.Org]string, len(rows))
	for _, r := range rows {
		out[r.ID] = r.Name
	}
	return out, nil
}
