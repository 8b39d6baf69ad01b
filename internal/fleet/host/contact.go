package host

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// contact is a full report of a host without leases, in which nothing is said but what the host is.
type contact struct {
	host id.Host
	sync agentapi.Sync
}

// isContact reports whether a report may be stored together with others.
func isContact(s agentapi.Sync) bool {
	return s.Full && len(s.Leases) == 0 && s.Pulled == nil && s.EngineAway == nil && s.Protocol >= agentapi.OldestRented
}

// recordContacts stores reports of several hosts in one transaction. The result is nil for each that must be stored
// alone: it ends claims or the failure of an engine, its host is unknown, or it is not the first one of its host.
func (a *Agents) recordContacts(ctx context.Context, all []contact) (out []*Report, err error) {
	err = a.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		out, err = recordContacts(ctx, tx, all)
		if err != nil {
			return err
		}
		tx.AfterCommit(func() {
			for i, r := range out {
				if r != nil {
					a.bus.Changed(bus.TopicHost(all[i].host))
				}
			}
		})
		return nil
	})
	return out, err
}

func recordContacts(ctx context.Context, tx *db.Tx, all []contact) ([]*Report, error) {
	hosts := make([]id.Host, len(all))
	for i, c := range all {
		hosts[i] = c.host
	}
	rows, err := tx.Q.HostsForReport(ctx, id.UUIDs(hosts...))
	if err != nil {
		return nil, err
	}
	known := make(map[id.Host]dbq.HostsForReportRow, len(rows))
	for _, h := range rows {
		known[h.ID] = h
	}
	out := make([]*Report, len(all))
	of := make(map[id.Host]*Report, len(all))
	var pending []id.Host // that this report makes active, or lets sell again
	var p dbq.TouchHostStatusesParams
	for i, c := range all {
		h, found := known[c.host]
		if !found || h.Ended || h.EngineAway != "" || of[c.host] != nil {
			continue
		}
		if (h.State == string(Enrolled) || h.NeedsFullReport) && c.sync.Revision >= h.Revision {
			pending = append(pending, c.host)
		}
		out[i] = &Report{Org: h.OrgID, Revision: h.Revision, Done: !h.LogsWait}
		of[c.host] = out[i]
		p.Hosts, p.RevisionsSeen = append(p.Hosts, id.UUIDs(hosts[i:i+1]...)...), append(p.RevisionsSeen, c.sync.Revision)
		p.AgentVersions = append(p.AgentVersions, VersionOf(c.sync))
		p.Protocols = append(p.Protocols, int32(c.sync.Protocol))
	}
	if err := reported(ctx, tx, pending, known); err != nil || len(p.Hosts) == 0 {
		return out, err
	}
	times, err := tx.Q.TouchHostStatuses(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	for _, t := range times {
		of[t.HostID].At = *t.LastSyncAt
	}
	return out, nil
}

// reported notes that hosts reported in full and have nothing that should not be there. A host whose revision has
// changed meanwhile is left out: its next report decides.
func reported(ctx context.Context, tx *db.Tx, hosts []id.Host, known map[id.Host]dbq.HostsForReportRow) error {
	if len(hosts) == 0 {
		return nil
	}
	locked, err := Lock(ctx, tx, hosts)
	if err != nil {
		return err
	}
	locked = slices.DeleteFunc(locked, func(h Host) bool { return h.Revision != known[h.ID].Revision })
	hosts = hosts[:0]
	for _, h := range locked {
		hosts = append(hosts, h.ID)
	}
	if err := tx.Q.HostsReported(ctx, id.UUIDs(hosts...)); err != nil {
		return fmt.Errorf("%d hosts reported: %w", len(hosts), err)
	}
	return nil
}

// How many reports are stored together, and how long that may take. A set keeps its hosts locked while it is stored.
const (
	storeAtOnce = 100
	storeWithin = 10 * time.Second
)

// knownAgent is what was stored of an agent when a report came.
type knownAgent struct {
	dbq.HostAgentOrdersRow
	found bool
	now   dbq.PutHostAgentParams // as it reports itself
	news  bool                   // it differs from what is stored, and was not stored
}

// storeAgents stores what agents report of themselves, in one statement for all, and returns what is stored then. A
// report is left out that says that an update was rolled back, which may stop its channel, and the second one of a
// host.
func (a *Agents) storeAgents(ctx context.Context, all []contact) ([]knownAgent, error) {
	hosts := make([]id.Host, len(all))
	for i, c := range all {
		hosts[i] = c.host
	}
	rows, err := a.db.Q.HostAgentOrders(ctx, id.UUIDs(hosts...))
	if err != nil {
		return nil, err
	}
	known := make(map[id.Host]dbq.HostAgentOrdersRow, len(rows))
	for _, r := range rows {
		known[r.ID] = r
	}
	out := make([]knownAgent, len(all))
	var changed []int
	stored := map[id.Host]bool{}
	for i, c := range all {
		k := &out[i]
		k.HostAgentOrdersRow, k.found = known[c.host]
		k.now = AgentOf(c.host, c.sync)
		switch {
		case !k.found || k.tooOld(c.sync) || k.same():
		case k.now.UpdateState == string(agentapi.UpdateRolledBack) || stored[c.host]:
			k.news = true
		default:
			changed, stored[c.host] = append(changed, i), true
		}
	}
	if len(changed) == 0 {
		return out, nil
	}
	slices.SortFunc(changed, func(x, y int) int { return hosts[x].Compare(hosts[y]) }) // the rows are locked in this order
	var p dbq.PutHostAgentsParams
	for _, i := range changed {
		k := &out[i]
		p.Hosts = append(p.Hosts, id.UUIDs(hosts[i:i+1]...)...)
		p.Capabilities = append(p.Capabilities, strings.Join(k.now.Capabilities, ","))
		p.UpdateStates = append(p.UpdateStates, k.now.UpdateState)
		p.UpdateVersions = append(p.UpdateVersions, k.now.UpdateVersion)
		p.UpdateTries = append(p.UpdateTries, k.now.UpdateTry)
		p.UpdateDetails = append(p.UpdateDetails, k.now.UpdateDetail)
		k.Capabilities, k.UpdateState, k.UpdateVersion = k.now.Capabilities, k.now.UpdateState, k.now.UpdateVersion
		k.UpdateTry, k.UpdateDetail = k.now.UpdateTry, k.now.UpdateDetail
	}
	err = a.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return tx.Q.PutHostAgents(ctx, p) })
	return out, err
}

// tooOld reports whether an agent is too old to report updates.
func (k *knownAgent) tooOld(s agentapi.Sync) bool {
	return len(s.Capabilities) == 0 && s.Update == nil && len(k.Capabilities) == 0
}

// same reports whether what is stored is what the agent reports.
func (k *knownAgent) same() bool {
	return slices.Equal(k.now.Capabilities, k.Capabilities) && k.now.UpdateState == k.UpdateState &&
		k.now.UpdateVersion == k.UpdateVersion && k.now.UpdateTry == k.UpdateTry && k.now.UpdateDetail == k.UpdateDetail
}

// order is what the update order is made from.
func (k *knownAgent) order() dbq.HostAgentOrderRow {
	return dbq.HostAgentOrderRow{
		Channel: k.Channel, Capabilities: k.Capabilities, UpdateState: k.UpdateState, UpdateVersion: k.UpdateVersion,
		UpdateTry: k.UpdateTry, UpdateDetail: k.UpdateDetail, Version: k.Version, Source: k.Source, Percent: k.Percent,
		Try: k.Try, Stopped: k.Stopped,
	}
}
