package market

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// loadHosts reads those of the hosts that can sell now, by id, in one round trip.
func (m *Market) loadHosts(ctx context.Context, q *dbq.Queries, ids []id.Host) (map[id.Host]*Host, error) {
	b := &pgx.Batch{}
	r := m.QueueHosts(b, ids, false)
	if err := db.Send(ctx, q, b); err != nil {
		return nil, fmt.Errorf("load hosts: %w", err)
	}
	return r.assemble()
}

// fleetRead is one read of the fleet's changes, in one database snapshot.
type fleetRead struct {
	mark  string    // position for the next read
	at    time.Time // PostgreSQL's clock
	ids   []id.Host // hosts read again; those not in hosts cannot sell now
	hosts map[id.Host]*Host
	// reach is all reachable hosts; nil if this read did not query them.
	reach map[id.Host]bool
	gangs *Gangs
}

// Intervals for reading values that change slowly.
const (
	mediansEvery     = time.Minute
	linkedEvery      = 5 * time.Minute
	gangBansEvery    = 10 * time.Second
	mediansOver      = 7 * 24 * time.Hour
	mediansOperators = 5
)

// readGangs reads the facts that decide which hosts may form gangs.
func (v *view) readGangs(ctx context.Context, q *dbq.Queries) (*Gangs, error) {
	g := &Gangs{Operators: map[id.Org]Operator{}, Hosts: map[id.Host]money.Nano{}, Bans: map[Ban]bool{}}
	operators, err := q.BondOperators(ctx, v.currency)
	if err != nil {
		return nil, fmt.Errorf("bonds: %w", err)
	}
	for _, o := range operators {
		x := Operator{Bond: money.Nano(o.Free), AcceptUnbonded: o.AcceptUnbonded}
		if limit := money.Nano(o.LiabilityMax); limit >= 0 {
			x.LiabilityMax = &limit
		}
		g.Operators[id.FromUUID[id.Org](o.OrgID.Bytes)] = x
	}
	limits, err := q.BondHostLimits(ctx)
	if err != nil {
		return nil, fmt.Errorf("liability of hosts: %w", err)
	}
	for _, l := range limits {
		g.Hosts[l.HostID] = l.LiabilityMax
	}
	bans, err := q.BondPairBans(ctx, int64(fairness.PairBan.Seconds()))
	if err != nil {
		return nil, fmt.Errorf("pair bans: %w", err)
	}
	for _, b := range bans {
		g.Bans[newBan(b.A.Bytes, b.B.Bytes)] = true
	}
	if err := v.readSlowGangs(ctx, q, v.now()); err != nil {
		return nil, err
	}
	if v.relistLock > 0 {
		locked, err := q.BondRelistLocks(ctx, int64(v.relistLock.Seconds()))
		if err != nil {
			return nil, fmt.Errorf("relist locks: %w", err)
		}
		g.Locked = make(map[id.Host]bool, len(locked))
		for _, h := range locked {
			g.Locked[h] = true
		}
	}
	tenants, err := q.FabricTenants(ctx)
	if err != nil {
		return nil, fmt.Errorf("who rents fabrics: %w", err)
	}
	g.Tenants = make(map[id.Fabric][]id.Org, len(tenants))
	for _, t := range tenants {
		g.Tenants[t.FabricID] = append(g.Tenants[t.FabricID], t.OrgID)
	}
	g.Medians, g.Linked, g.HostBans = v.medians, v.linked, v.gangBans
	return g, nil
}

// readSlowGangs reads those of the facts again that change slowly, and whose interval has passed: median prices, linked
// organisations and bans of hosts.
func (v *view) readSlowGangs(ctx context.Context, q *dbq.Queries, now time.Time) error {
	if v.medians == nil || now.Sub(v.mediansAt) > mediansEvery {
		rows, err := q.BondModelMedians(ctx, firstID(now.Add(-mediansOver)), v.currency, mediansOperators)
		if err != nil {
			return fmt.Errorf("median prices: %w", err)
		}
		v.medians, v.mediansAt = make(map[string]money.Micro, len(rows)), now
		for _, r := range rows {
			v.medians[r.GPUModel] = money.Micro(r.Median)
		}
	}
	if v.linked == nil || now.Sub(v.linkedAt) > linkedEvery {
		rows, err := q.BondLinkedOrgs(ctx, !v.simulate) // in a sandbox all organisations use the same test cards
		if err != nil {
			return fmt.Errorf("who is linked with whom: %w", err)
		}
		v.linked, v.linkedAt = map[id.Org]map[id.Org]bool{}, now
		for _, r := range rows {
			renter := id.FromUUID[id.Org](r.RenterOrg.Bytes)
			if v.linked[renter] == nil {
				v.linked[renter] = map[id.Org]bool{}
			}
			v.linked[renter][id.FromUUID[id.Org](r.OperatorOrg.Bytes)] = true
		}
	}
	if v.gangBans == nil || now.Sub(v.gangBansAt) > gangBansEvery {
		bans, err := readGangBans(ctx, q, now)
		if err != nil {
			return err
		}
		v.gangBans, v.gangBansAt = bans, now
	}
	return nil
}

// readGangBans returns the hosts that are currently banned from gangs because of their strikes.
func readGangBans(ctx context.Context, q *dbq.Queries, now time.Time) (map[id.Host]bool, error) {
	rows, err := q.BondGangStrikes(ctx)
	if err != nil {
		return nil, fmt.Errorf("strikes of hosts: %w", err)
	}
	strikes := map[id.Host][]fairness.Strike{}
	for _, r := range rows {
		h := id.FromUUID[id.Host](r.HostID.Bytes)
		strikes[h] = append(strikes[h], fairness.Strike{
			AtMS:    r.At.UnixMilli(),
			Against: id.FromUUID[id.Org](r.AgainstOrg.Bytes),
		})
	}
	out := map[id.Host]bool{}
	for h, all := range strikes {
		if fairness.GangBan(all) > now.UnixMilli() {
			out[h] = true
		}
	}
	return out, nil
}

// firstID returns an id that is smaller than the ids of all leases created at t or later.
func firstID(t time.Time) pgtype.UUID {
	var b uuid.UUID
	binary.BigEndian.PutUint64(b[:8], uint64(max(0, t.UnixMilli()))<<16)
	return pgtype.UUID{Bytes: b, Valid: true}
}
