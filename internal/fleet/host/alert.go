package host

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

// Alert is a problem of a host that its operator should look at.
type Alert struct {
	Action      string // action name in the audit log
	Title, Body string // of the notice
}

// Alert writes an alert into the audit log and notifies the host's organisation, at most once a day per host and
// action.
func (a *Agents) Alert(ctx context.Context, host id.Host, v Alert) error {
	return a.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		h, err := Read(ctx, tx.Q, host)
		if err != nil {
			return err
		}
		return a.alert(ctx, tx, h.Org, host, v)
	})
}

func (a *Agents) alert(ctx context.Context, tx *db.Tx, org id.Org, host id.Host, v Alert) error {
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	added, err := notify.Add(ctx, tx, notify.Notice{
		Org: org, Key: v.Action + ":" + host.String() + ":" + now.UTC().Format(time.DateOnly),
		Severity: notify.Bad, Title: v.Title, Body: v.Body, Object: host.String(),
	})
	if err != nil || !added {
		return err
	}
	tx.AfterCommit(func() { a.bus.Changed(bus.TopicOrg(org)) })
	return audit.Record(ctx, tx, audit.Event{Org: org, Action: v.Action, Object: host.String()})
}

func engineAwayAlert(why string) Alert {
	return Alert{
		Action: "host.engine_away",
		Title:  "A host's container engine does not answer",
		Body: "The host gets no new leases and comes back by itself once its engine answers and nothing is left of ended " +
			"leases. What runs there without live-restore ends as the host's fault. Look at it with systemctl status docker. " +
			"The agent says: " + why,
	}
}

func tooOldAlert(s agentapi.Sync) Alert {
	return Alert{
		Action: "host.agent_too_old",
		Title:  "An agent is too old for new leases",
		Body: fmt.Sprintf("The agent of this host (%.40s) speaks protocol %d; new leases need %d or newer. It keeps the "+
			"leases it has, and is paid for them. Update it: run install-agent.sh with a newer archive, or let the platform do "+
			"it (muster host set NAME --agent-channel stable).", s.AgentVersion, s.Protocol, agentapi.OldestRented),
	}
}
