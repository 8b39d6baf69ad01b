package host

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/idem"
)

// FloorComponents are the programs of hosts that can have version floors.
var FloorComponents = []string{"docker", "driver", "runc", "toolkit"}

// NewFloor is a version floor to set.
type NewFloor struct {
	Component string
	Branch    string // prefix of the versions that it is of, as 1.3.; "" = of all that no other floor is of
	Least     string
	Reason    string
	Noticed   string // the day on which the reason became known, as 2026-05-26
	// BlocksFrom is from when on an older version keeps a host from being rented; nil = never, it is a warning only.
	BlocksFrom *time.Time
}

var (
	floorVersion = regexp.MustCompile(`^[0-9]+(\.[0-9]+){1,2}$`)
	floorBranch  = regexp.MustCompile(`^([0-9]+\.){0,2}$`)
)

func (n NewFloor) check() (noticed time.Time, err error) {
	var bad fault.Fields
	if !slices.Contains(FloorComponents, n.Component) {
		bad.Add("component", "want one of %s", strings.Join(FloorComponents, ", "))
	}
	if !floorBranch.MatchString(n.Branch) || len(n.Branch) > 20 {
		bad.Add("branch", "want the beginning of versions up to a dot, such as 1.3., or nothing")
	}
	if !floorVersion.MatchString(n.Least) || len(n.Least) > 20 || !strings.HasPrefix(n.Least, n.Branch) {
		bad.Add("least", "want two or three numbers with dots, of that branch")
	}
	if n.Reason == "" || len(n.Reason) > 200 {
		bad.Add("reason", "want 1 to 200 bytes: operators read it")
	}
	if noticed, err = time.Parse(time.DateOnly, n.Noticed); err != nil {
		bad.Add("noticed_on", "want a day, such as 2026-05-26")
	}
	return noticed, bad.Err()
}

// Floors returns the version floors. Only staff may call it. Fault: Forbidden.
func (x *Hosts) Floors(ctx context.Context, who account.Principal) ([]client.VersionFloor, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	return floors(ctx, x.db.Q)
}

func floors(ctx context.Context, q *dbq.Queries) ([]client.VersionFloor, error) {
	rows, err := q.VersionFloors(ctx)
	if err != nil {
		return nil, fmt.Errorf("version floors: %w", err)
	}
	out := make([]client.VersionFloor, len(rows))
	for i, r := range rows {
		out[i] = client.VersionFloor{Component: r.Component, Branch: r.Branch, Least: r.Least, Reason: r.Reason,
			NoticedOn: r.NoticedOn.Time.Format(time.DateOnly)}
		if r.WillBlock {
			from := r.BlocksFrom.UTC()
			out[i].BlocksFrom = &from
		}
	}
	return out, nil
}

// SetFloor sets the version floor of a component and branch. Hosts are judged by it when they send their inventory
// again, at most an hour later. Only staff may call it. Faults: Forbidden, Invalid.
func (x *Hosts) SetFloor(ctx context.Context, who account.Principal, n NewFloor) ([]client.VersionFloor, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	noticed, err := n.check()
	if err != nil {
		return nil, err
	}
	err = x.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		err := tx.Q.PutVersionFloor(ctx, dbq.PutVersionFloorParams{
			Component: n.Component, Branch: n.Branch, Least: n.Least, Reason: n.Reason,
			NoticedOn: pgtype.Date{Time: noticed, Valid: true}, BlocksFrom: n.BlocksFrom,
		})
		if err != nil {
			return fmt.Errorf("floor of %s %s: %w", n.Component, n.Branch, err)
		}
		if err := judgeAgain(ctx, tx); err != nil {
			return err
		}
		return audit.Record(ctx, tx, who.Event("version_floor.set", nameOf(n.Component, n.Branch), map[string]any{
			"least": n.Least, "reason": n.Reason, "blocks_from": n.BlocksFrom,
		}))
	})
	if err != nil {
		return nil, err
	}
	return x.Floors(ctx, who)
}

// RemoveFloor removes the version floor of a component and branch, and returns the others. Only staff may call it.
// Faults: Forbidden, NotFound.
func (x *Hosts) RemoveFloor(ctx context.Context, who account.Principal, component, branch string,
	once idem.Request) ([]client.VersionFloor, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, idem.Outcome{}, err
	}
	return idem.Once(ctx, x.db, once, func(ctx context.Context, tx *db.Tx) ([]client.VersionFloor, error) {
		n, err := tx.Q.DeleteVersionFloor(ctx, component, branch)
		if err != nil {
			return nil, fmt.Errorf("delete floor of %s %s: %w", component, branch, err)
		}
		if n == 0 {
			return nil, fault.New(fault.NotFound, "version floor not found")
		}
		if err := judgeAgain(ctx, tx); err != nil {
			return nil, err
		}
		err = audit.Record(ctx, tx, who.Event("version_floor.remove", nameOf(component, branch), nil))
		if err != nil {
			return nil, err
		}
		return floors(ctx, tx.Q)
	})
}

// judgeAgain makes the next inventory of every host count as a new one.
func judgeAgain(ctx context.Context, tx *db.Tx) error {
	if err := tx.Q.JudgeInventoriesAgain(ctx); err != nil {
		return fmt.Errorf("judge inventories again: %w", err)
	}
	return nil
}

// nameOf returns the name of a floor in the audit log: "runc 1.3.".
func nameOf(component, branch string) string { return strings.TrimSpace(component + " " + branch) }
