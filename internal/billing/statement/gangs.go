package statement

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// gangRows bounds each list of Gangs.
const gangRows = 200

// Gangs is what the rules of gangs did over some days, for admins. Each list has at most 200 rows.
type Gangs struct {
	Strikes   []Strikes  `json:"strikes" doc:"by host, kind and opponent, the latest first"`
	PairBans  []PairBan  `json:"pair_bans" doc:"pairs that are not placed together now"`
	Relief    []Relief   `json:"relief" doc:"by cluster, the most first"`
	Renters   []Unbilled `json:"unbilled_by_renter" doc:"time of a renter's clusters that was not billed because not every rank was proven up, the most first"`
	Operators []Unbilled `json:"unbilled_by_operator" doc:"time for which an operator's hosts are to blame, the most first"`
}

// Strikes are those of one host.
type Strikes struct {
	Host       id.Host   `json:"host_id"`
	HostName   string    `json:"host_name"`
	Org        id.Org    `json:"org_id" doc:"its operator"`
	Kind       string    `json:"kind" enum:"doubt,start,loss,undecided"`
	AgainstOrg id.Org    `json:"against_org_id,omitzero" doc:"the other operator of an undecided end"`
	Strikes    int64     `json:"strikes"`
	LastAt     time.Time `json:"last_at"`
}

// PairBan keeps a renter and a host, or two operators, out of one gang.
type PairBan struct {
	A     string    `json:"a" doc:"an organisation or a host"`
	AName string    `json:"a_name"`
	B     string    `json:"b" doc:"the other one"`
	BName string    `json:"b_name"`
	Until time.Time `json:"until"`
}

// Relief is what the platform paid for standing by in one cluster.
type Relief struct {
	Cluster  id.Cluster `json:"cluster_id"`
	Org      id.Org     `json:"org_id" doc:"its renter"`
	Name     string     `json:"name"`
	Relief   money.Nano `json:"relief"`
	Millis   int64      `json:"standby_ms"`
	UsageFee money.Nano `json:"usage_fee" doc:"the platform's fee on the same cluster: relief is never above it"`
	LastAt   time.Time  `json:"last_at"`
}

// Unbilled is suspended time by organisation.
type Unbilled struct {
	Org         id.Org `json:"org_id"`
	Name        string `json:"name"`
	Clusters    int64  `json:"clusters"`
	Suspensions int64  `json:"suspensions"`
	Millis      int64  `json:"ms"`
	UndecidedMS int64  `json:"undecided_ms" doc:"of ms, time for which nobody is to blame because ranks did not hear each other; 0 by operator"`
}

// GangsOf reads what the rules of gangs did in the last days. Fault: Forbidden.
func (s *Statements) GangsOf(ctx context.Context, who account.Principal, days int) (Gangs, error) {
	out := Gangs{
		Strikes:   []Strikes{},
		PairBans:  []PairBan{},
		Relief:    []Relief{},
		Renters:   []Unbilled{},
		Operators: []Unbilled{},
	}
	if err := account.RequireStaff(who); err != nil {
		return out, err
	}
	since := int32(days)
	strikes, err := s.d.Q.GangStrikesOfHosts(ctx, since, gangRows)
	if err != nil {
		return out, fmt.Errorf("read strikes: %w", err)
	}
	for _, r := range strikes {
		out.Strikes = append(out.Strikes, Strikes{r.HostID, r.HostName, r.OrgID, r.Kind,
			id.FromUUID[id.Org](r.AgainstOrg.Bytes), r.Strikes, r.LastAt.UTC()})
	}
	bans, err := s.d.Q.GangPairBans(ctx, gangRows)
	if err != nil {
		return out, fmt.Errorf("read pair bans: %w", err)
	}
	for _, r := range bans {
		out.PairBans = append(out.PairBans, PairBan{banned(r.A.Bytes, r.AIsHost), r.AName, banned(r.B.Bytes, r.BIsHost),
			r.BName, r.Until.UTC()})
	}
	relief, err := s.d.Q.ReliefByCluster(ctx, since, gangRows)
	if err != nil {
		return out, fmt.Errorf("read relief: %w", err)
	}
	for _, r := range relief {
		out.Relief = append(out.Relief, Relief{r.ClusterID, r.OrgID, r.Name, money.Nano(r.Relief), r.Ms,
			money.Nano(r.UsageFee), r.PostedAt.UTC()})
	}
	renters, err := s.d.Q.UnbilledByRenter(ctx, since, gangRows)
	if err != nil {
		return out, fmt.Errorf("read unbilled time of renters: %w", err)
	}
	for _, r := range renters {
		out.Renters = append(out.Renters, Unbilled{r.OrgID, r.Name, r.Clusters, r.Suspensions, r.Ms, r.UndecidedMs})
	}
	operators, err := s.d.Q.UnbilledByOperator(ctx, since, gangRows)
	if err != nil {
		return out, fmt.Errorf("read unbilled time of operators: %w", err)
	}
	for _, r := range operators {
		out.Operators = append(out.Operators, Unbilled{
			Org:         r.OrgID,
			Name:        r.Name,
			Clusters:    r.Clusters,
			Suspensions: r.Suspensions,
			Millis:      r.Ms,
		})
	}
	return out, nil
}

// banned returns the id of one side of a ban.
func banned(b [16]byte, isHost bool) string {
	if isHost {
		return id.FromUUID[id.Host](b).String()
	}
	return id.FromUUID[id.Org](b).String()
}
