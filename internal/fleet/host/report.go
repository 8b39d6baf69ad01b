package host

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// Report is the result of recording a host's report.
type Report struct {
	At       time.Time // time of recording on PostgreSQL's clock
	Org      id.Org    // the host's organisation
	Revision int64     // the host's current revision
	// Gone are the ended leases whose claims ended with this report, because the host's full report no longer shows them.
	Gone []id.Lease
	// EngineAway is why the host's container engine does not respond, if this is the first report of the failure; else "".
	EngineAway string

	// Done is true if the report says nothing about leases, present or past: cluster.ApplyReport would store nothing.
	Done bool

	hasDataCap bool // the host has a data cap, or is still held back by one
}

// RecordReport records a host's report: its contact, versions, the revision that it has seen, its leases' traffic, and
// the images that it received. Reports may be duplicated, late and out of order.
//
// Full reports of hosts without leases that arrive together are stored together, unless one ends something.
//
// A full report made at the current revision ends the claims of ended leases that it does not show or shows as gone. If
// it shows nothing that should not be there, a host whose claims were abandoned, or whose container engine did not
// respond, may sell again. The first full report makes an enrolled host active. While the engine does not respond, a
// report does not prove that any lease is gone, and the host sells nothing.
func (a *Agents) RecordReport(ctx context.Context, host id.Host, s agentapi.Sync) (r Report, err error) {
	if isContact(s) {
		r, err := a.contacts.Do(ctx, contact{host, s})
		if err != nil {
			return Report{}, fmt.Errorf("report of %s: %w", host, err)
		}
		if r != nil {
			return *r, nil
		}
	}
	return a.recordAlone(ctx, host, s)
}

// recordAlone is RecordReport in a transaction for this report alone.
func (a *Agents) recordAlone(ctx context.Context, host id.Host, s agentapi.Sync) (r Report, err error) {
	err = a.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if r, err = recordContact(ctx, tx, host, s); err != nil {
			return err
		}
		traffic, err := recordTraffic(ctx, tx, host, s.Leases)
		if err != nil {
			return err
		}
		pulls, err := recordPulls(ctx, tx, host, s.Pulled)
		if err != nil {
			return err
		}
		if r.hasDataCap && (traffic || pulls) {
			if err := updateDataCap(ctx, tx, host); err != nil {
				return err
			}
		}
		if s.Full || r.EngineAway != "" {
			tx.AfterCommit(func() { a.bus.Changed(bus.TopicHost(host)) })
		}
		if r.EngineAway != "" {
			if err := a.alert(ctx, tx, r.Org, host, engineAwayAlert(r.EngineAway)); err != nil {
				return err
			}
		}
		if s.Full && s.Protocol < agentapi.OldestRented { // a self-updating agent also gets an update order
			return a.alert(ctx, tx, r.Org, host, tooOldAlert(s))
		}
		return nil
	})
	if err != nil {
		return Report{}, fmt.Errorf("report of %s: %w", host, err)
	}
	return r, nil
}

// TouchHosts records that hosts reported in full and that nothing was new, with one statement.
func TouchHosts(ctx context.Context, d *db.DB, hosts []id.Host) error {
	err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return tx.Q.TouchHosts(ctx, id.UUIDs(hosts...)) })
	if err != nil {
		return fmt.Errorf("contact of %d hosts: %w", len(hosts), err)
	}
	return nil
}

// recordContact records contact, versions and revision, and ends the claims of leases that are gone. It may lock the
// host.
func recordContact(ctx context.Context, tx *db.Tx, host id.Host, s agentapi.Sync) (Report, error) {
	var h dbq.HostForReportRow
	var gone []id.Lease // ended leases that the report does not show
	b := &pgx.Batch{}
	db.Read(b, &h, (*dbq.Queries).HostForReport, host)
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		gone, err = q.UnshownEndedLeases(ctx, host, id.UUIDs(shown(s)...))
		return err
	})
	err := tx.Send(ctx, b)
	if err != nil {
		return Report{}, err
	}
	r := Report{Org: h.OrgID, Revision: h.Revision, hasDataCap: h.HasDataCap}
	if r.EngineAway, err = recordEngine(ctx, tx, host, &h, s.EngineAway); err != nil {
		return Report{}, err
	}
	// Only a report made after the host learned of all lease ends proves that an ended lease is gone. An older report may
	// lack a lease because the lease had not started yet.
	if s.Full && s.Revision >= h.Revision && s.EngineAway == nil {
		if r.Gone, err = applyFull(ctx, tx, host, h, gone, occupying(s)); err != nil {
			return Report{}, err
		}
	}
	at, err := tx.Q.TouchHostStatus(ctx, dbq.TouchHostStatusParams{
		HostID: host, FullReport: s.Full, RevisionSeen: s.Revision,
		AgentVersion: VersionOf(s), Protocol: int32(s.Protocol),
	})
	if err != nil {
		return Report{}, fmt.Errorf("status: %w", err)
	}
	r.At = *at
	return r, nil
}

// recordEngine records that the host's container engine stopped or resumed responding. news is the reason if the engine
// has stopped responding since the last report, else "".
func recordEngine(ctx context.Context, tx *db.Tx, host id.Host, h *dbq.HostForReportRow,
	away *agentapi.EngineAway) (news string, err error) {
	why := ""
	if away != nil {
		why = cmp.Or(text.Clip(strings.Map(printable, strings.ToValidUTF8(away.Detail, "")), 500), "it does not answer")
	}
	if (why == "") == (h.EngineAway == "") {
		return "", nil
	}
	if _, err := lockOne(ctx, tx, host); err != nil {
		return "", err
	}
	if err := tx.Q.SetEngineAway(ctx, why, host); err != nil {
		return "", fmt.Errorf("engine of %s: %w", host, err)
	}
	h.EngineAway, h.NeedsFullReport = why, h.NeedsFullReport || why != ""
	return why, nil
}

// printable replaces a control character with a space.
func printable(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}

// shown returns the leases of which something is left on the host.
func shown(s agentapi.Sync) []id.Lease {
	var out []id.Lease
	for _, l := range s.Leases {
		if v, err := id.Parse[id.Lease](l.Lease); err == nil && !l.Gone {
			out = append(out, v)
		}
	}
	return out
}

// occupying returns the leases that may use GPUs of the host.
func occupying(s agentapi.Sync) []id.Lease {
	s.Leases = slices.DeleteFunc(slices.Clone(s.Leases), func(l agentapi.LeaseStatus) bool { return l.GPUsFree })
	return shown(s)
}

func applyFull(ctx context.Context, tx *db.Tx, host id.Host, h dbq.HostForReportRow, gone,
	shown []id.Lease) ([]id.Lease, error) {
	if len(gone) == 0 && h.State != string(Enrolled) && !h.NeedsFullReport {
		return nil, nil
	}
	if now, err := lockOne(ctx, tx, host); err != nil || now.Revision != h.Revision {
		return nil, err // the revision changed meanwhile; the next report decides
	}
	if len(gone) > 0 {
		if err := tx.Q.EndLeaseClaims(ctx, EndReleased, id.UUIDs(gone...), host); err != nil {
			return nil, fmt.Errorf("end claims on %s: %w", host, err)
		}
	}
	if h.State == string(Enrolled) || h.NeedsFullReport {
		foreign, err := tx.Q.CountForeignShown(ctx, id.UUIDs(shown...), host)
		if err != nil {
			return nil, fmt.Errorf("what is left on %s: %w", host, err)
		}
		if err := tx.Q.HostReported(ctx, foreign == 0, host); err != nil {
			return nil, fmt.Errorf("%s reported: %w", host, err)
		}
	}
	return gone, nil
}
