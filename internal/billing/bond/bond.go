// Package bond keeps the money with which operators of hosts answer for each other in gangs.
//
// A gang is a cluster whose ranks run on hosts of several operators. When one rank fails, the others stand by and the
// renter pays nothing for that time. The operator of the failing host pays the others, from money that was reserved
// before the cluster began: its bond.
//
// What always holds:
//   - A bond is fed only by what an operator paid in (never by promotional credit) and by earnings that are payable.
//   - What came out of the wallet goes back to the wallet: it never becomes a payout.
//   - A bond answers for its operator, as pending and payable earnings do. What disputes and reviews claim beyond
//     those earnings cannot be withdrawn, what disputes of the operator's own payments claim cannot stand in for a
//     lease, and what was given back beyond earnings is made good from it.
//   - host_bond and bond_hold never fall below zero. So a lease never pays more than what was reserved for it, and no
//     more is reserved than the operator has.
//   - Σ host_bond + bond_hold of an operator changes only by the entries bond_deposit, bond_retain, bond_withdraw,
//     standby and those of disputes of its own payments; bond_reserve and bond_release move between the two.
//   - What is reserved for a lease is released once, when its cluster is settled and every standstill of it is decided.
package bond

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Bonds are the use cases of operators' bonds. Safe for concurrent use.
type Bonds struct {
	d        *db.DB
	currency string // ISO 4217, upper case
}

// New returns the use cases on d.
func New(d *db.DB, currency string) *Bonds { return &Bonds{d, currency} }

// Defaults of Terms.
const (
	defaultRetainPPM = 250_000
	// targetHours is up to how many hours of what the operator's GPUs usually cost earnings are retained.
	targetHours = 10
)

// Terms are what an operator has decided about its bond.
type Terms struct {
	// RetainPPM is the part of maturing earnings that is kept as bond, in millionths, until the bond is what 10 hours of
	// the operator's GPUs usually cost. The default is 250,000.
	RetainPPM int64
	// AcceptUnbonded lets hosts without a bond join gangs with this operator's hosts, if the renter allows it too.
	AcceptUnbonded bool
	// LiabilityMax is the most that one lease of this operator may be liable for; nil means no limit.
	LiabilityMax *money.Nano
}

// TermsOf returns the terms of an operator, the defaults if it has set none.
func TermsOf(ctx context.Context, q *dbq.Queries, org id.Org) (Terms, error) {
	r, err := q.BondTerms(ctx, org)
	if db.NoRows(err) {
		return Terms{RetainPPM: defaultRetainPPM}, nil
	}
	if err != nil {
		return Terms{}, fmt.Errorf("read bond terms of %s: %w", org, err)
	}
	return Terms{RetainPPM: int64(r.RetainPpm), AcceptUnbonded: r.AcceptUnbonded, LiabilityMax: r.LiabilityMax}, nil
}

// TermsChange is a change of Terms. A nil field stays as it is.
type TermsChange struct {
	RetainPPM      *int64
	AcceptUnbonded *bool
	LiabilityMax   **money.Nano // a pointer to nil removes the limit
}

func (c TermsChange) apply(t Terms) Terms {
	if c.RetainPPM != nil {
		t.RetainPPM = *c.RetainPPM
	}
	if c.AcceptUnbonded != nil {
		t.AcceptUnbonded = *c.AcceptUnbonded
	}
	if c.LiabilityMax != nil {
		t.LiabilityMax = *c.LiabilityMax
	}
	return t
}

func (t Terms) check() error {
	var bad fault.Fields
	if t.RetainPPM < 0 || t.RetainPPM > 1_000_000 {
		bad.Add("retain_ppm", "must be between 0 and 1000000 millionths")
	}
	if t.LiabilityMax != nil && *t.LiabilityMax < 0 {
		bad.Add("gang_liability_max", "must not be below zero")
	}
	return bad.Err()
}

// SetTerms changes the terms of the caller's organisation. They apply to leases rented from now on. It returns the bond
// as it is then. Fault: Invalid.
func (b *Bonds) SetTerms(ctx context.Context, who account.Principal, c TermsChange) (s Standing, err error) {
	err = b.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		t, err := TermsOf(ctx, tx.Q, who.Org)
		if err != nil {
			return err
		}
		if t = c.apply(t); t.check() != nil {
			return t.check()
		}
		if err := t.save(ctx, tx, who); err != nil {
			return err
		}
		s, err = b.standing(ctx, tx.Q, who.Org, Shown)
		return err
	})
	return s, err
}

func (t Terms) save(ctx context.Context, tx *db.Tx, who account.Principal) error {
	if err := tx.Q.SetBondTerms(ctx, dbq.SetBondTermsParams{
		OrgID:          who.Org,
		RetainPpm:      int32(t.RetainPPM),
		AcceptUnbonded: t.AcceptUnbonded,
		LiabilityMax:   t.LiabilityMax,
		ChangedBy:      who.User,
	}); err != nil {
		return fmt.Errorf("set bond terms of %s: %w", who.Org, err)
	}
	detail := map[string]any{"retain_ppm": t.RetainPPM, "accept_unbonded": t.AcceptUnbonded}
	if t.LiabilityMax != nil {
		detail["gang_liability_max"] = t.LiabilityMax.String()
	}
	return audit.Record(ctx, tx, who.Event("bond.terms", who.Org.String(), detail))
}

// SetHostLiability sets the most that one lease of a host may be liable for; nil removes the host's own limit, and the
// operator's limit applies. The host is the caller's. It returns the bond as it is then. Faults: NotFound, Invalid.
func (b *Bonds) SetHostLiability(ctx context.Context, who account.Principal, of id.Host,
	limit *money.Nano) (s Standing, err error) {
	err = b.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := setHostLiability(ctx, tx, who, of, limit); err != nil {
			return err
		}
		s, err = b.standing(ctx, tx.Q, who.Org, Shown)
		return err
	})
	return s, err
}

func setHostLiability(ctx context.Context, tx *db.Tx, who account.Principal, of id.Host, limit *money.Nano) error {
	detail := map[string]any{}
	if limit == nil {
		known, err := tx.Q.ClearHostLiability(ctx, of, who.Org)
		if err != nil {
			return fmt.Errorf("clear liability limit of host %s: %w", of, err)
		}
		if !known {
			return fault.New(fault.NotFound, "host not found")
		}
		return audit.Record(ctx, tx, who.Event("bond.host_liability", of.String(), detail))
	}
	if *limit < 0 {
		return fault.InvalidField("gang_liability_max", "must not be below zero")
	}
	n, err := tx.Q.SetHostLiability(ctx, int64(*limit), of, who.Org)
	if err != nil {
		return fmt.Errorf("set liability limit of host %s: %w", of, err)
	}
	if n == 0 {
		return fault.New(fault.NotFound, "host not found")
	}
	detail["gang_liability_max"] = limit.String()
	return audit.Record(ctx, tx, who.Event("bond.host_liability", of.String(), detail))
}
