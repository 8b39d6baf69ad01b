package account

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // a server may run where no time zone files are installed

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

//go:embed zones.txt
var zoneList string

// zones are the time zones that an org can choose, in alphabetical order after UTC.
var zones = strings.Fields(zoneList)

// Zones returns the IANA names of the time zones that an org can choose: UTC, then the zones of all countries.
func Zones() []string { return slices.Clone(zones) }

// ZoneOf returns the time zone in which an org's days, months and years begin. It is UTC until SetZone.
func ZoneOf(ctx context.Context, q *dbq.Queries, org id.Org) (*time.Location, error) {
	name, err := q.OrgZone(ctx, org)
	if err != nil {
		return nil, fmt.Errorf("time zone of %s: %w", org, err)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return time.UTC, nil
	}
	return zone, nil
}

// Zone returns the time zone of the principal's org.
func (a *Accounts) Zone(ctx context.Context, p Principal) (*time.Location, error) {
	return ZoneOf(ctx, a.db.Q, p.Org)
}

// SetZone sets the time zone of the principal's org. Statements, earnings and monthly statements that are read from now
// on use it; what was issued keeps its own. Fault: Invalid for a name that is not among Zones.
func (a *Accounts) SetZone(ctx context.Context, p Principal, zone string) error {
	if !slices.Contains(zones, zone) {
		return fault.InvalidField("zone", "is not a time zone: use an IANA name such as Europe/Berlin, or UTC")
	}
	return a.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := tx.Q.SetOrgZone(ctx, zone, p.Org)
		if err != nil {
			return fmt.Errorf("set the time zone: %w", err)
		}
		if n == 0 { // as it is
			return nil
		}
		return audit.Record(ctx, tx, p.Event("org.zone_set", p.Org.String(), map[string]any{"zone": zone}))
	})
}
