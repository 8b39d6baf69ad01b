package host

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// Names of the actions that an operator can take on a host.
const (
	Drain   = "drain"   // no new leases; running leases continue
	Reclaim = "reclaim" // no new leases; running leases end after a notice period
	Resume  = "resume"  // cancels Drain and Reclaim
	Retire  = "retire"  // final: keys revoked, connection closed, GPUs free to enrol elsewhere

	Requalify = "requalify" // of one GPU that is not healthy: reset it, check it, put it back into service
)

// MaxNotice is the longest notice period of Reclaim.
const MaxNotice = 30 * 24 * time.Hour

// Action is an operator's action on a host.
type Action struct {
	Name   string // Drain, Reclaim, Resume, Retire or Requalify
	Notice int64  // Reclaim only: seconds until running leases end, 0 to MaxNotice
	GPU    string // Requalify only: the GPU's UUID
}

// Actions returns the names of the actions that are allowed in the host's present state.
func (h *Host) Actions() []string {
	switch h.State {
	case Active:
		return []string{Drain, Reclaim, Retire}
	case Draining:
		return []string{Resume, Reclaim, Retire}
	case Enrolled:
		return []string{Retire}
	}
	return []string{}
}

func (a Action) check() error {
	if a.Notice != 0 && a.Name != Reclaim {
		return fault.InvalidField("notice", "goes with reclaim only")
	}
	if (a.GPU != "") != (a.Name == Requalify) {
		return fault.InvalidField("gpu", "goes with requalify, which needs it")
	}
	switch most := int64(MaxNotice.Seconds()); a.Name {
	case Drain, Resume, Retire, Requalify:
		return nil
	case Reclaim:
		if a.Notice < 0 || a.Notice > most {
			return fault.InvalidField("notice", "want 0 to %d seconds", most)
		}
		return nil
	}
	return fault.InvalidField("action", "want one of drain, reclaim, resume, requalify, retire")
}

// Act applies an action to one host of who's organisation and returns the updated host. Repeating an action changes
// nothing, except that a repeated Reclaim sets a new time. Faults: NotFound; Invalid for an unknown action or notice;
// Conflict if the host's state does not allow the action, or if a host to be retired has GPUs in use.
func (x *Hosts) Act(ctx context.Context, who account.Principal, host id.Host, a Action,
	once idem.Request) (Detail, idem.Outcome, error) {
	if err := a.check(); err != nil {
		return Detail{}, idem.Outcome{}, err
	}
	return idem.Once(ctx, x.db, once, func(ctx context.Context, tx *db.Tx) (Detail, error) {
		h, err := lockOwn(ctx, tx, who.Org, host)
		if err != nil {
			return Detail{}, err
		}
		switch a.Name {
		case Drain:
			err = x.move(ctx, tx, who, h, "host.drain", Active, Draining)
		case Resume:
			err = x.move(ctx, tx, who, h, "host.resume", Draining, Active)
		case Reclaim:
			err = x.reclaim(ctx, tx, who, h, a.Notice)
		case Retire:
			err = x.retire(ctx, tx, who, h)
		case Requalify:
			err = x.requalify(ctx, tx, who, h, a.GPU)
		}
		if err != nil {
			return Detail{}, err
		}
		return get(ctx, tx.Q, who.Org, host)
	})
}

// move changes the host's state from one value to another and writes the audit log. It does nothing if the host already
// has the new state.
func (x *Hosts) move(ctx context.Context, tx *db.Tx, who account.Principal, h Host, action string, from,
	to State) error {
	switch h.State {
	case to:
		return nil
	case from:
	default:
		return fault.New(fault.Conflict, "The host is %s.", h.State)
	}
	if err := tx.Q.SetHostState(ctx, string(to), h.ID); err != nil {
		return fmt.Errorf("%s becomes %s: %w", h.ID, to, err)
	}
	publish(tx, x.bus, h)
	return audit.Record(ctx, tx, who.Event(action, h.ID.String(), nil))
}

// reclaim stops new leases on the host, and sets the time at which its running leases end: notice seconds from now.
func (x *Hosts) reclaim(ctx context.Context, tx *db.Tx, who account.Principal, h Host, notice int64) error {
	if h.State != Active && h.State != Draining {
		return fault.New(fault.Conflict, "The host is %s.", h.State)
	}
	at, err := tx.Q.ReclaimHost(ctx, int32(notice), h.ID)
	if err != nil {
		return fmt.Errorf("reclaim %s: %w", h.ID, err)
	}
	if at == nil {
		return fmt.Errorf("reclaim %s: no time came back", h.ID)
	}
	publish(tx, x.bus, h)
	return audit.Record(ctx, tx, who.Event("host.reclaim", h.ID.String(),
		map[string]any{"notice_seconds": notice, "at": at.UTC()}))
}

// retire removes the host from the platform permanently. It does nothing if the host is already retired.
func (x *Hosts) retire(ctx context.Context, tx *db.Tx, who account.Principal, h Host) error {
	if h.State == Retired {
		return nil
	}
	if n, err := tx.Q.CountHostClaims(ctx, h.ID); err != nil {
		return fmt.Errorf("claims on %s: %w", h.ID, err)
	} else if n > 0 {
		return fault.New(fault.Conflict, "%d of the host's GPUs are in use: drain it and wait until they are free.", n)
	}
	if n, err := tx.Q.CountHostUploads(ctx, h.ID); err != nil {
		return fmt.Errorf("uploads of %s: %w", h.ID, err)
	} else if n > 0 {
		return fault.New(fault.Conflict, "The host still uploads what %d ended leases wrote. That takes half an hour at "+
			"most: drain the host and wait.", n)
	}
	if err := x.remove(ctx, tx, h); err != nil {
		return err
	}
	return audit.Record(ctx, tx, who.Event("host.retire", h.ID.String(), nil))
}

// remove makes a host on which nothing is claimed a retired one.
func (x *Hosts) remove(ctx context.Context, tx *db.Tx, h Host) error {
	if err := RevokeKeys(ctx, tx, x.bus, h.ID); err != nil {
		return err
	}
	if err := tx.Q.RemoveHostGPUs(ctx, h.ID); err != nil {
		return fmt.Errorf("remove GPUs of %s: %w", h.ID, err)
	}
	if err := tx.Q.EndContests(ctx, h.ID); err != nil {
		return fmt.Errorf("end contests of %s: %w", h.ID, err)
	}
	if err := tx.Q.RetireHost(ctx, h.ID); err != nil {
		return fmt.Errorf("retire %s: %w", h.ID, err)
	}
	publish(tx, x.bus, h)
	return nil
}

// EndTakenOver stops the renting of hosts of an organisation that another person may have set up with its owner's
// e-mail address. Hosts that take leases are drained, so that the owner has to resume each of them; hosts that never
// connected are retired.
func (x *Hosts) EndTakenOver(ctx context.Context, tx *db.Tx, org id.Org) error {
	hosts, err := tx.Q.HostsThatMayBeRented(ctx, org)
	if err != nil {
		return fmt.Errorf("lock hosts of %s: %w", org, err)
	}
	none := account.Principal{Org: org}
	for _, r := range hosts {
		h := Host{ID: r.ID, Org: org, State: State(r.State)}
		if h.State == Active {
			err = x.move(ctx, tx, none, h, "host.drain", Active, Draining)
		} else {
			err = x.retire(ctx, tx, none, h)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func publish(tx *db.Tx, b *bus.Bus, h Host) {
	tx.AfterCommit(func() { b.Changed(bus.TopicHost(h.ID), bus.TopicOrg(h.Org)) })
}
