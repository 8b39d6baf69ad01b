package statement

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// gangRows bounds each list of Gangs.
const gangRows = 200

// Gangs is what the rules of gangs did over some days, for admins. Each list has at most 200 rows.
type Gangs = client.Gangs

// Strikes are those of one host.
type Strikes = client.GangStrikes

// PairBan keeps a renter and a host, or two operators, out of one gang.
type PairBan = client.PairBan

// Starts is what the starts of an organisation held without paying.
type Starts = client.StartHolds

// Relief is what the platform paid for standing by in one cluster.
type Relief = client.GangRelief

// Unbilled is suspended time by organisation.
type Unbilled = client.Unbilled

// GangsOf reads what the rules of gangs did in the last days. Fault: Forbidden.
func (s *Statements) GangsOf(ctx context.Context, who account.Principal, days int) (Gangs, error) {
	out := Gangs{
		Strikes:   []Strikes{},
		PairBans:  []PairBan{},
		Relief:    []Relief{},
		Renters:   []Unbilled{},
		Starts:    []Starts{},
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
		out.Strikes = append(out.Strikes, Strikes{Host: r.HostID, HostName: r.HostName, Org: r.OrgID, Kind: r.Kind,
			AgainstOrg: id.FromUUID[id.Org](r.AgainstOrg.Bytes), Strikes: r.Strikes, LastAt: r.LastAt.UTC()})
	}
	bans, err := s.d.Q.GangPairBans(ctx, gangRows)
	if err != nil {
		return out, fmt.Errorf("read pair bans: %w", err)
	}
	for _, r := range bans {
		out.PairBans = append(out.PairBans, PairBan{
			A:     banned(r.A.Bytes, r.AIsHost),
			AName: r.AName,
			B:     banned(r.B.Bytes, r.BIsHost),
			BName: r.BName,
			Until: r.Until.UTC(),
		})
	}
	relief, err := s.d.Q.ReliefByCluster(ctx, since, gangRows)
	if err != nil {
		return out, fmt.Errorf("read relief: %w", err)
	}
	for _, r := range relief {
		out.Relief = append(out.Relief, Relief{
			Cluster:  r.ClusterID,
			Org:      r.OrgID,
			Name:     r.Name,
			Relief:   money.Nano(r.Relief),
			Millis:   r.Ms,
			UsageFee: money.Nano(r.UsageFee),
			LastAt:   r.PostedAt.UTC(),
		})
	}
	renters, err := s.d.Q.UnbilledByRenter(ctx, since, gangRows)
	if err != nil {
		return out, fmt.Errorf("read unbilled time of renters: %w", err)
	}
	for _, r := range renters {
		out.Renters = append(out.Renters, Unbilled{
			Org:         r.OrgID,
			Name:        r.Name,
			Clusters:    r.Clusters,
			Suspensions: r.Suspensions,
			Millis:      r.Ms,
			UndecidedMS: r.UndecidedMs,
		})
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
	starts, err := s.d.Q.StartHoldsByOrg(ctx, since, gangRows)
	if err != nil {
		return out, fmt.Errorf("read starts: %w", err)
	}
	for _, r := range starts {
		out.Starts = append(out.Starts, Starts{Org: r.OrgID, Name: r.Name, Starts: r.Starts, HeldMS: r.HeldMs,
			CountMS: r.GPUMs, Value: money.Nano(r.Value), LastAt: r.LastAt.UTC()})
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
