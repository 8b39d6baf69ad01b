package host

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/interval"
)

// The control plane sends itself a message every PulseEvery through each listener, on the same path as hosts' reports.
// If the message does not arrive, hosts' reports would not have arrived either, so silence of hosts is not their fault.
const (
	PulseEvery = 5 * time.Second
	// PulseGap is the longest time between two pulses that does not count as a gap.
	PulseGap = 10 * time.Second
	// PulseSlow is the longest time that a pulse may take; a slower pulse counts as a gap, too.
	PulseSlow = 5 * time.Second

	// settleIn is the time that hosts have to reconnect after a gap, plus one second for every reconnectPerSecond hosts.
	settleIn           = 120 * time.Second
	reconnectPerSecond = 500

	// If hosts with leases of a listener fall silent within silentWithin, that is a fault of the listener and not of the
	// hosts, provided that massSilent holds and that no such gap of the listener has ended within massRest.
	silentWithin = 35 * time.Second
	massRest     = 30 * time.Minute
)

// Causes of a gap.
const (
	gapPulse   = "pulse"
	gapSlow    = "slow"
	gapMass    = "mass_silence"
	gapRestore = "restore"
)

// Pulse is one message of the control plane to itself.
type Pulse struct {
	Listener     string // id of the NATS server that carried it
	SentMS       int64  // send time on PostgreSQL's clock, unix ms
	ControlEpoch int64
}

// RecordPulse records that a listener delivers hosts' reports, and the gaps that end with this pulse: the listener's
// own, those of stopped listeners, and gaps in which hosts of many operators fell silent together. Each gap includes
// the time that hosts need to reconnect.
func (r *Replicas) RecordPulse(ctx context.Context, p Pulse) error {
	return r.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		rows, err := tx.Q.LockPulse(ctx)
		if err != nil {
			return fmt.Errorf("lock pulses: %w", err)
		}
		at, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		now := at.UnixMilli()
		hosts, err := tx.Q.ListenerSilence(ctx, now-silentWithin.Milliseconds(), p.Listener)
		if err != nil {
			return fmt.Errorf("hosts of listener %s: %w", p.Listener, err)
		}
		mass, err := massSilence(ctx, tx, p.Listener, hosts, now)
		if err != nil {
			return err
		}
		gaps, gone := gapsOf(p, rows, mass, now)
		for _, g := range gaps {
			if err := tx.Q.InsertDeafGap(ctx, g); err != nil {
				return fmt.Errorf("record a gap of listener %s: %w", p.Listener, err)
			}
		}
		if err := tx.Q.DropPulses(ctx, gone); err != nil {
			return fmt.Errorf("drop the pulses of listeners that are gone: %w", err)
		}
		if err := tx.Q.PutPulse(ctx, p.Listener, now, p.ControlEpoch); err != nil {
			return fmt.Errorf("record the pulse of listener %s: %w", p.Listener, err)
		}
		return nil
	})
}

// gapsOf returns the gaps that end with a pulse that arrives now, and the listeners that have stopped. rows are the
// last pulses of all listeners.
func gapsOf(p Pulse, rows []dbq.Pulse, mass silence, now int64) (out []dbq.InsertDeafGapParams, gone []string) {
	until := now + settleIn.Milliseconds() + mass.hosts*1000/reconnectPerSecond
	gap := func(listener string, from int64, cause string) {
		if from < until {
			out = append(out, dbq.InsertDeafGapParams{Listener: listener, FromMs: from, ToMs: until, Cause: cause})
		}
	}
	longest := PulseGap.Milliseconds()
	known, dead := false, int64(0)
	for _, r := range rows {
		switch {
		case r.Listener == p.Listener:
			known = true
			switch {
			case r.ControlEpoch != p.ControlEpoch:
				gap(p.Listener, r.LastMs, gapRestore)
			case now-r.LastMs > longest:
				gap(p.Listener, r.LastMs, gapPulse)
			}
		case now-r.LastMs > longest:
			gap(r.Listener, r.LastMs, gapPulse) // its hosts can now reconnect through this listener
			dead, gone = max(dead, r.LastMs), append(gone, r.Listener)
		}
	}
	if !known && dead > 0 {
		gap(p.Listener, dead, gapPulse) // it replaces a stopped listener, whose hosts are reconnecting
	}
	if now-p.SentMS > PulseSlow.Milliseconds() {
		gap(p.Listener, p.SentMS, gapSlow)
	}
	if mass.sinceMS > 0 {
		gap(p.Listener, mass.sinceMS, gapMass)
	}
	return out, gone
}

// DropOldGaps deletes gaps that are too old to affect any decision, and returns how many it deleted.
func DropOldGaps(ctx context.Context, d *db.DB) (int64, error) {
	n, err := d.Q.PruneDeafGaps(ctx)
	if err != nil {
		return 0, fmt.Errorf("prune gaps: %w", err)
	}
	return n, nil
}

// Reception is the times at which the control plane could not receive hosts' reports, by listener.
type Reception struct {
	gaps map[string][]interval.Span
	all  []interval.Span
}

// QueueReception queues a read of all gaps that end after since.
func QueueReception(b *pgx.Batch, since time.Time, into *Reception) {
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.DeafTime(ctx, since.UnixMilli(), PulseGap.Milliseconds())
		*into = Reception{gaps: map[string][]interval.Span{}}
		for _, r := range rows {
			s := interval.Span{Start: r.FromMs, End: r.ToMs}
			into.gaps[r.Listener], into.all = append(into.gaps[r.Listener], s), append(into.all, s)
		}
		return err
	})
}

// Deaf returns the times at which the control plane could not receive reports of a host that has been connected to
// listener since connected. Before that, the host may have been connected to any listener, so the gaps of all count.
func (h Reception) Deaf(listener string, connected time.Time) interval.Set {
	if len(h.all) == 0 {
		return nil
	}
	before := interval.Of(h.all...).Clip(interval.Span{Start: 0, End: connected.UnixMilli()})
	return interval.Of(append(before, h.gaps[listener]...)...)
}

// Open reports whether a gap of any listener is not over yet.
func (h Reception) Open() bool {
	for _, g := range h.all {
		if g.End == math.MaxInt64 {
			return true
		}
	}
	return false
}

// RecordRestore records that the database was restored. It adds a gap for all listeners from the given time until now,
// plus the time that hosts need to reconnect. No host sells anything until it has sent a full report, because it may
// run leases that the database lost. RecordRestore returns the number of hosts that must send a full report.
func RecordRestore(ctx context.Context, tx *db.Tx, from time.Time) (hosts int64, err error) {
	now, err := tx.Now(ctx)
	if err != nil {
		return 0, err
	}
	listeners, err := tx.Q.Listeners(ctx)
	if err != nil {
		return 0, fmt.Errorf("listeners: %w", err)
	}
	leased, err := tx.Q.HostsUnderLease(ctx)
	if err != nil {
		return 0, fmt.Errorf("hosts under lease: %w", err)
	}
	until := now.UnixMilli() + settleIn.Milliseconds() + leased*1000/reconnectPerSecond
	for _, l := range listeners {
		if from.UnixMilli() >= until {
			break
		}
		g := dbq.InsertDeafGapParams{Listener: l, FromMs: from.UnixMilli(), ToMs: until, Cause: gapRestore}
		if err := tx.Q.InsertDeafGap(ctx, g); err != nil {
			return 0, fmt.Errorf("record the gap of the restore: %w", err)
		}
	}
	if hosts, err = tx.Q.RequireFullReports(ctx); err != nil {
		return 0, fmt.Errorf("require full reports: %w", err)
	}
	return hosts, nil
}
