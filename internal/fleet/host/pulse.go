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

// The control plane sends itself a message every PulseEvery through each listener, on the way that hosts' reports take.
// When it does not arrive, hosts' reports would not have arrived either, so their silence proves nothing.
const (
	PulseEvery = 5 * time.Second
	// PulseGap is the longest time between two pulses in which the control plane counts as hearing.
	PulseGap = 10 * time.Second
	// PulseSlow is how long a pulse may be under way; a slower one is a gap too.
	PulseSlow = 5 * time.Second

	// settleIn is how long hosts have to come back after a gap; every reconnectPerSecond hosts get another second.
	settleIn           = 120 * time.Second
	reconnectPerSecond = 500

	// That many hosts with leases, and that part of those of a listener, which fall silent within silentWithin are a fault
	// of the listener and not of the hosts.
	massSilentHosts = 10
	massSilentPart  = 5 // a fifth
	silentWithin    = 35 * time.Second
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
	Listener     string // the NATS server it came through
	SentMS       int64  // PostgreSQL's clock when it was sent, unix ms
	ControlEpoch int64
}

// RecordPulse records that the control plane receives what the hosts of a listener send, and the gaps that this pulse
// ends: its own, those of listeners that are gone, and a gap of many hosts that fell silent together. Each gap includes
// the time that hosts need to come back.
func (r *Replicas) RecordPulse(ctx context.Context, p Pulse) error {
	return r.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		rows, err := tx.Q.LockPulse(ctx)
		if err != nil {
			return fmt.Errorf("host: lock pulses: %w", err)
		}
		at, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		now := at.UnixMilli()
		hosts, err := tx.Q.ListenerSilence(ctx, now-silentWithin.Milliseconds(), p.Listener)
		if err != nil {
			return fmt.Errorf("host: hosts of listener %s: %w", p.Listener, err)
		}
		gaps, gone := gapsOf(p, rows, hosts, now)
		for _, g := range gaps {
			if err := tx.Q.InsertDeafGap(ctx, g); err != nil {
				return fmt.Errorf("host: record a gap of listener %s: %w", p.Listener, err)
			}
		}
		if err := tx.Q.DropPulses(ctx, gone); err != nil {
			return fmt.Errorf("host: drop the pulses of listeners that are gone: %w", err)
		}
		if err := tx.Q.PutPulse(ctx, p.Listener, now, p.ControlEpoch); err != nil {
			return fmt.Errorf("host: record the pulse of listener %s: %w", p.Listener, err)
		}
		return nil
	})
}

// gapsOf returns the gaps that a pulse that arrives now ends, and the listeners that are gone. rows are the last pulses
// of all listeners.
func gapsOf(p Pulse, rows []dbq.Pulse, hosts dbq.ListenerSilenceRow,
	now int64) (out []dbq.InsertDeafGapParams, gone []string) {
	until := now + settleIn.Milliseconds() + hosts.Hosts*1000/reconnectPerSecond
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
			gap(r.Listener, r.LastMs, gapPulse) // its hosts can come back from now on, through this one
			dead, gone = max(dead, r.LastMs), append(gone, r.Listener)
		}
	}
	if !known && dead > 0 {
		gap(p.Listener, dead, gapPulse) // it takes the place of one that is gone: its hosts are coming back
	}
	if now-p.SentMS > PulseSlow.Milliseconds() {
		gap(p.Listener, p.SentMS, gapSlow)
	}
	if hosts.Silent >= massSilentHosts && hosts.Silent*massSilentPart >= hosts.Hosts {
		gap(p.Listener, hosts.SinceMs, gapMass)
	}
	return out, gone
}

// DropOldGaps removes gaps that are so old that nothing is decided by them any more.
func DropOldGaps(ctx context.Context, d *db.DB) (int64, error) {
	n, err := d.Q.PruneDeafGaps(ctx)
	if err != nil {
		return 0, fmt.Errorf("host: prune gaps: %w", err)
	}
	return n, nil
}

// Reception is when the control plane could not hear, by listener.
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

// Deaf is when the control plane could not hear a host which has reported through the given listener since the moment
// of its connection. Before that moment it may have been connected to any other.
func (h Reception) Deaf(listener string, connected time.Time) interval.Set {
	if len(h.all) == 0 {
		return nil
	}
	before := interval.Of(h.all...).Clip(interval.Span{Start: 0, End: connected.UnixMilli()})
	return interval.Of(append(before, h.gaps[listener]...)...)
}

// Open reports whether a gap of any listener lasts: the control plane does not know yet when it ends.
func (h Reception) Open() bool {
	for _, g := range h.all {
		if g.End == math.MaxInt64 {
			return true
		}
	}
	return false
}

// RecordRestore notes that the database was restored: from a moment until now, plus the time that hosts need to come
// back, nobody was heard, and no host sells anything until it has reported in full what runs on it, which may be leases
// that the database lost. It returns of how many hosts a full report is required.
func RecordRestore(ctx context.Context, tx *db.Tx, from time.Time) (hosts int64, err error) {
	now, err := tx.Now(ctx)
	if err != nil {
		return 0, err
	}
	listeners, err := tx.Q.Listeners(ctx)
	if err != nil {
		return 0, fmt.Errorf("host: listeners: %w", err)
	}
	leased, err := tx.Q.HostsUnderLease(ctx)
	if err != nil {
		return 0, fmt.Errorf("host: hosts under lease: %w", err)
	}
	until := now.UnixMilli() + settleIn.Milliseconds() + leased*1000/reconnectPerSecond
	for _, l := range listeners {
		if from.UnixMilli() >= until {
			break
		}
		g := dbq.InsertDeafGapParams{Listener: l, FromMs: from.UnixMilli(), ToMs: until, Cause: gapRestore}
		if err := tx.Q.InsertDeafGap(ctx, g); err != nil {
			return 0, fmt.Errorf("host: record the gap of the restore: %w", err)
		}
	}
	if hosts, err = tx.Q.RequireFullReports(ctx); err != nil {
		return 0, fmt.Errorf("host: require full reports: %w", err)
	}
	return hosts, nil
}
