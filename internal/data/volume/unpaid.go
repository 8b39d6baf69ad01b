package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/billing/owed"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
)

// Volumes that are not paid for are erased in two steps: after unpaidLife they are hidden, and are back as soon as what
// is owed is paid; hiddenLife later they are deleted, with the key of their data.
const (
	unpaidLife = 30 * 24 * time.Hour
	hiddenLife = 7 * 24 * time.Hour
)

// unpaid is what a data domain owes.
type unpaid struct {
	org    id.Org
	since  *time.Time // nil: nothing is owed
	kept   *time.Time // nothing is hidden before; nil: see hides
	owed   money.Nano
	now    time.Time // PostgreSQL's clock
	erased bool      // it has no volumes any more
}

// hides returns when unpaid volumes are hidden: unpaidLife after the first moment that is not paid for, and not before
// kept.
func hides(since time.Time, kept *time.Time) time.Time {
	at := since.Add(unpaidLife)
	if kept != nil && kept.After(at) {
		at = *kept
	}
	return at
}

// fate returns when a volume is hidden and erased if what is owed for it is not paid; nil: nothing is owed.
func fate(since, kept, hidden *time.Time) (hide, erase *time.Time) {
	if since == nil {
		return nil, nil
	}
	at := hides(*since, kept)
	if hidden != nil {
		at = *hidden
	}
	end := at.Add(hiddenLife)
	return &at, &end
}

// late reports whether the volumes are to be hidden.
func (u unpaid) late() bool { return u.since != nil && !u.now.Before(hides(*u.since, u.kept)) }

// judge sets since when what is owed is unpaid, and until when volumes are kept all the same. Whose payment is
// disputed, or who pays by invoice and owes none that is overdue, cannot be expected to pay now: the time until volumes
// are hidden begins when that is over.
func judge(ctx context.Context, tx *db.Tx, u *unpaid) error {
	if u.owed == 0 {
		u.since, u.kept = nil, nil
		return nil
	}
	if u.since == nil {
		u.since = &u.now
	}
	kept, err := tx.Q.StorageIsKept(ctx, u.org)
	if err != nil {
		return fmt.Errorf("disputes and invoices of %s: %w", u.org, err)
	}
	if kept {
		until := u.now.Add(unpaidLife)
		u.kept = &until
	}
	return nil
}

// applyUnpaid shows volumes that are hidden and need not be, and notifies the organisation of what it owes. fresh:
// nothing was owed before.
func applyUnpaid(ctx context.Context, currency string, tx *db.Tx, domain id.DataDomain, u unpaid, fresh bool) error {
	if !u.late() {
		n, err := tx.Q.ShowVolumes(ctx, domain)
		if err != nil {
			return fmt.Errorf("show the volumes of %s: %w", domain, err)
		}
		if n > 0 {
			if err := notifyShown(ctx, tx, u); err != nil {
				return err
			}
		}
	}
	if u.since == nil {
		return nil
	}
	return notifyUnpaid(ctx, currency, tx, u, fresh)
}

// Arrears hides and erases volumes whose storage is not paid for.
type Arrears struct {
	d        *db.DB
	bus      *bus.Bus // nil: pages are not notified
	currency string
	meters   *Meters
}

// Erase hides the volumes of organisations that have owed for storage for unpaidLife, deletes those that have
// been hidden for hiddenLife, and notifies these organisations. It charges first: who has paid in keeps the volumes. It
// leaves volumes alone that a cluster has. It returns how many it hid or deleted.
func (a *Arrears) Erase(ctx context.Context) (did int, err error) {
	var errs []error
	for after := id.First[id.Volume](); ctx.Err() == nil; {
		rows, err := a.d.Q.UnpaidVolumes(ctx, unpaidLife.Seconds(), hiddenLife.Seconds(), after)
		if err != nil {
			return did, errors.Join(append(errs, fmt.Errorf("unpaid volumes: %w", err))...)
		}
		if len(rows) == 0 {
			break
		}
		for _, r := range rows {
			after = r.ID
			done, err := a.erase(ctx, r.OrgID, r.ID)
			if err != nil { // the others are erased all the same
				errs = append(errs, fmt.Errorf("erase %s: %w", r.ID, err))
			} else if done {
				did++
			}
		}
	}
	return did, errors.Join(errs...)
}

// erase takes a volume that seems to be unpaid for too long to the next step.
func (a *Arrears) erase(ctx context.Context, org id.Org, vol id.Volume) (did bool, err error) {
	err = locked(ctx, a.d, org, vol, func(ctx context.Context, tx *db.Tx, row dbq.Volume) error {
		did = false
		domain, err := tx.Q.LockDataDomain(ctx, row.DomainID)
		if err != nil {
			return fmt.Errorf("lock %s: %w", row.DomainID, err)
		}
		u, err := a.meters.chargeLocked(ctx, tx, domain)
		if err != nil || !u.late() {
			return err
		}
		if used, err := used(ctx, tx, vol, u.now); err != nil || used {
			return err
		}
		if row.HiddenAt != nil && u.now.Sub(*row.HiddenAt) < hiddenLife {
			return nil
		}
		did = true
		if row.HiddenAt == nil {
			return a.hide(ctx, tx, row, u)
		}
		if err := deleteVolume(ctx, tx, row); err != nil {
			return err
		}
		_, err = notify.Add(ctx, tx, notify.Notice{
			Org: org, Severity: notify.Warn, Key: "storage_erased:" + vol.String(),
			Title: fmt.Sprintf("The volume %s was erased", row.Name),
			Body:  "It was not paid for in 30 days, and then hidden for 7 days.",
		})
		return err
	})
	if fault.Is(err, fault.NotFound) { // it was deleted since
		return false, nil
	}
	return did && err == nil, err
}

// used reports whether a cluster has a locked volume, or has ended and still stores its last snapshot.
func used(ctx context.Context, tx *db.Tx, vol id.Volume, now time.Time) (bool, error) {
	err := unmounted(ctx, tx, vol)
	if fault.Is(err, fault.Conflict) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	rows, err := tx.Q.VolumeWriters(ctx, id.UUIDs(vol))
	if err != nil {
		return false, fmt.Errorf("writer of %s: %w", vol, err)
	}
	for _, r := range rows {
		if !r.ClusterID.IsZero() && writes(r, now) != "" {
			return true, nil
		}
	}
	return false, nil
}

// hide makes a locked volume unusable until it is paid for.
func (a *Arrears) hide(ctx context.Context, tx *db.Tx, row dbq.Volume, u unpaid) error {
	for _, readers := range []bool{false, true} {
		if err := tx.Q.CloseDataSessions(ctx, row.ID, readers, id.New[id.DataSession]()); err != nil {
			return fmt.Errorf("close sessions of %s: %w", row.ID, err)
		}
	}
	if err := tx.Q.DeleteVolumeWriter(ctx, row.ID); err != nil {
		return fmt.Errorf("end the writer of %s: %w", row.ID, err)
	}
	if err := tx.Q.HideVolume(ctx, &u.now, row.ID); err != nil {
		return fmt.Errorf("hide %s: %w", row.ID, err)
	}
	changed(a.bus, tx, row.OrgID)
	total, err := owed.Read(ctx, tx.Q, row.OrgID)
	if err != nil {
		return err
	}
	until := day(u.now.Add(hiddenLife))
	_, err = notify.Add(ctx, tx, notify.Notice{
		Org: row.OrgID, Severity: notify.Bad, Object: row.ID.String(),
		Key:   "storage_hidden:" + row.ID.String() + ":" + u.now.UTC().Format(time.DateOnly),
		Title: fmt.Sprintf("The volume %s is hidden and will be erased on %s", row.Name, until),
		Body: fmt.Sprintf("You have owed for storage for 30 days, now %s %s. Add at least that much credit before %s: then "+
			"the volume is back within seconds, with all its snapshots. After that day it cannot be restored.",
			total.Amount.Plain(), a.currency, until),
	})
	return err
}

// errHidden is the fault for using a volume that is hidden.
func errHidden(name string) error {
	f := fault.New(fault.Conflict, "the volume %s is hidden because its storage is not paid for: add the credit that is "+
		"owed, and it is back within seconds", name)
	f.Extra = map[string]any{"reason": "volume_hidden"}
	return f
}

// day is a day in a notice.
func day(t time.Time) string { return t.UTC().Format("2 January 2006") }

// notifyUnpaid notifies the organisation when storage becomes unpaid, and again 7 days and a day before its volumes are
// hidden, each time with what it owes in all.
func notifyUnpaid(ctx context.Context, currency string, tx *db.Tx, u unpaid, fresh bool) error {
	at := hides(*u.since, u.kept)
	n := notify.Notice{Org: u.org, Severity: notify.Warn}
	until := day(at)
	switch left := at.Sub(u.now); {
	case fresh:
		n.Key, n.Title = "storage_unpaid:"+u.now.UTC().Format(time.DateOnly), "Your volumes are not paid for"
		if u.erased {
			n.Title = "What your volumes stored is not paid for"
		}
	case u.erased || left <= 0:
		return nil
	case left <= 24*time.Hour:
		n.Key, n.Title = "storage_unpaid:1:"+at.UTC().Format(time.DateOnly), "Your volumes will be hidden within a day"
		n.Severity = notify.Bad
	case left <= 7*24*time.Hour:
		n.Key, n.Title = "storage_unpaid:7:"+at.UTC().Format(time.DateOnly), "Your volumes will be hidden on "+until
	default:
		return nil
	}
	total, err := owed.Read(ctx, tx.Q, u.org)
	if err != nil {
		return err
	}
	n.Body = fmt.Sprintf("You owe %s %s for what your volumes store, and there is not enough credit. Add at least that "+
		"much: it is charged within seconds. No new snapshots are stored until then, and after a day nothing new can be "+
		"rented.", total.Amount.Plain(), currency)
	if !u.erased {
		n.Body += fmt.Sprintf(" If it is not paid by %s, your volumes are hidden, and on %s they are erased for good.",
			until, day(at.Add(hiddenLife)))
	}
	_, err = notify.Add(ctx, tx, n)
	return err
}

// notifyShown notifies the organisation that hidden volumes are back.
func notifyShown(ctx context.Context, tx *db.Tx, u unpaid) error {
	_, err := notify.Add(ctx, tx, notify.Notice{
		Org: u.org, Severity: notify.Info, Key: "storage_shown:" + u.now.UTC().Format(time.RFC3339),
		Title: "Your volumes are back",
		Body:  "What kept them hidden is paid. They have all their snapshots.",
	})
	return err
}
