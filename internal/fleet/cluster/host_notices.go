package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

// reclaim is when an operator takes a host back, and when they requested it; zero: they do not.
type reclaim struct{ at, requestedAt time.Time }

// noticed reports whether there was time to save what a credit stands for: what was computed since the last checkpoint.
func (r reclaim) noticed() bool { return r.at.Sub(r.requestedAt) >= metering.CreditSpan }

// takenBack ends a node whose host its operator takes back, once the time has come; before, it notifies the renter,
// once for each time that is set. It reports whether the node has ended.
func (x *lockedCluster) takenBack(n *node) bool {
	told := deref(n.ReclaimTold)
	switch {
	case n.back.at.IsZero() && told.IsZero():
	case n.back.at.IsZero():
		n.ReclaimTold, n.dirty = nil, true
		x.notifyReclaim(n, "Its host stays", "The operator of its host does not take the machine back after all.",
			notify.Info, told)
	case !x.now.Before(n.back.at):
		r, detail := lifecycle.ReasonHostReclaimed, "its operator took the machine back at once"
		if n.back.noticed() {
			r = lifecycle.ReasonHostWithdrawn
		}
		if told.Equal(n.back.at) {
			detail = fmt.Sprintf("its operator took the machine back, as was said at %s UTC",
				n.back.requestedAt.UTC().Format("2006-01-02 15:04:05"))
		}
		if x.step(n, lifecycle.NodeTakenBack, r, detail) {
			return true
		}
		return lifecycle.NodeState(n.State) == lifecycle.NodeFailed
	case !told.Equal(n.back.at):
		at := n.back.at
		n.ReclaimTold, n.dirty = &at, true
		body := fmt.Sprintf("The operator of its host takes the machine back at %s UTC: save what you need before. %s",
			at.UTC().Format("2006-01-02 15:04:05"), x.withoutIt())
		x.notifyReclaim(n, "Its host is taken back at "+at.UTC().Format("15:04:05")+" UTC", body, notify.Warn, at)
	}
	return false
}

// withoutIt says what happens when a node's host is gone.
func (x *lockedCluster) withoutIt() string {
	switch x.spec.OnNodeFailure {
	case "replace":
		return "Another host is looked for then, and every rank starts again."
	case "ignore":
		return "The other ranks go on without it."
	}
	return "The cluster ends then."
}

// notifyLeaving adds an event to the timeline and notifies the renter, once per lease: a host reports that its cloud
// will stop, restart or move the machine. The text is the host's own; nothing is decided by it, because a false report
// must not harm anyone.
func (x *lockedCluster) notifyLeaving(n *node, says string) {
	rank := n.Rank
	title := "its host's cloud announces an interruption"
	body := fmt.Sprintf("Its host says: %s. The node goes on and is charged as before for as long as it is proven up; "+
		"the machine may vanish soon: save what you need. %s", says, x.withoutIt())
	x.events = append(x.events, dbq.InsertClusterEventParams{
		ClusterID: x.row.ID,
		At:        x.now,
		Kind:      "host_leaving",
		Rank:      &rank,
		Title:     fmt.Sprintf("Rank %d: %s", rank, title),
		Detail:    body,
		Data:      []byte("{}"),
	})
	x.notifyRenter("host_leaving:"+n.LeaseID.String(), []int{int(rank)}, notify.Notice{
		Severity: notify.Warn,
		Title:    fmt.Sprintf("%s, rank %d: %s", x.row.Name, rank, title),
		Body:     body,
		Forecast: true,
	})
}

// notifyNotUploaded adds an event to the timeline and notifies the renter: what a node wrote to buckets of the renter's
// is lost in part.
func (x *lockedCluster) notifyNotUploaded(n *node, lost []agentapi.NotUploaded) {
	rank := n.Rank
	var what []string
	for _, l := range lost {
		s := fmt.Sprintf("bucket %s: %d files, %d bytes", l.Name, l.Files, l.Bytes)
		if l.Uploads == (agentapi.Uploads{}) {
			s = fmt.Sprintf("bucket %s: it is not known how much", l.Name)
		}
		if l.Detail != "" {
			s += " (" + l.Detail + ")"
		}
		what = append(what, s)
	}
	title := "not everything was uploaded"
	body := "What the node wrote to a bucket and its host did not upload before the lease was over is lost: " +
		strings.Join(what, "; ") + ". What was uploaded before is in the bucket."
	x.events = append(x.events, dbq.InsertClusterEventParams{
		ClusterID: x.row.ID,
		At:        x.now,
		Kind:      "not_uploaded",
		Rank:      &rank,
		Title:     fmt.Sprintf("Rank %d: %s", rank, title),
		Detail:    body,
		Data:      []byte("{}"),
	})
	x.notifyRenter("not_uploaded:"+n.LeaseID.String(), []int{int(rank)}, notify.Notice{
		Severity: notify.Bad,
		Title:    fmt.Sprintf("%s, rank %d: %s", x.row.Name, rank, title),
		Body:     body,
	})
}

// notifyReclaim adds an event to the timeline and notifies the renter.
func (x *lockedCluster) notifyReclaim(n *node, title, body string, severity notify.Severity, at time.Time) {
	rank := n.Rank
	x.events = append(x.events, dbq.InsertClusterEventParams{
		ClusterID: x.row.ID,
		At:        x.now,
		Kind:      "host_reclaim",
		Rank:      &rank,
		Title:     fmt.Sprintf("Rank %d: %s", rank, lowerFirst(title)),
		Detail:    body,
		Data:      []byte("{}"),
	})
	x.notifyRenter(fmt.Sprintf("host_reclaim:%d:%t", at.Unix(), n.ReclaimTold != nil), []int{int(rank)},
		notify.Notice{
			Severity: severity,
			Title:    fmt.Sprintf("%s, rank %d: %s", x.row.Name, rank, lowerFirst(title)),
			Body:     body,
			Forecast: true,
		})
}

// newlyCapped reports whether a host's data cap is used up and the renter has not been notified of it for this month.
func newlyCapped(until, told *time.Time, now time.Time) bool {
	return until != nil && now.Before(*until) && (told == nil || !told.Equal(*until))
}

// addCapEvent adds an event to the timeline: the data cap of a node's host is used up. Nothing changes for the renter,
// but the operator may now want the machine back.
func (x *lockedCluster) addCapEvent(n *node) {
	rank, month := n.Rank, n.capped.UTC().AddDate(0, 0, -1).Format("January")
	x.events = append(x.events, dbq.InsertClusterEventParams{
		ClusterID: x.row.ID,
		At:        x.now,
		Kind:      "host_data_cap",
		Rank:      &rank,
		Title:     fmt.Sprintf("Rank %d: its host has used up its line's data cap for %s", rank, month),
		Detail: "The node goes on at full speed and is charged as before: data costs you nothing. The host takes no new " +
			"leases, and its operator may want it back: " +
			"you are notified of the time, and are refunded the last hour if the notice is shorter than an hour. Keep " +
			"checkpoints " +
			"outside the node; to move now, release the cluster and rent elsewhere.",
		Data: []byte("{}"),
	})
}

// addOwnerUseEvent adds an event to the timeline, once per lease: a host reports that its owner's programs use the
// node's GPUs. The text is the host's own; nothing is decided by it, because a false report must not harm anyone.
func (x *lockedCluster) addOwnerUseEvent(n *node, mb int64) {
	rank := n.Rank
	x.events = append(x.events, dbq.InsertClusterEventParams{
		ClusterID: x.row.ID,
		At:        x.now,
		Kind:      "owner_uses_gpu",
		Rank:      &rank,
		Title:     fmt.Sprintf("Rank %d: programs of its host's owner use its GPU too", rank),
		Detail: fmt.Sprintf("Its host says that they took %d MiB of its memory. The node goes on and is charged as "+
			"before, but may be slower or find less memory. If that is in your way, release the cluster and rent elsewhere.",
			mb),
		Data: []byte("{}"),
	})
}

// notifyScratch notifies the operator of a node's host, once a day, that the node failed for lack of scratch space: the
// host is still rented, and each node that needs scratch would fail there. detail is the text of the host's report.
func (x *lockedCluster) notifyScratch(n *node, detail string) {
	at := x.now.UTC()
	x.addWrite(func(ctx context.Context, w *writer) error {
		h, err := host.Read(ctx, w.tx.Q, n.HostID)
		if err != nil {
			return err
		}
		added, err := notify.Add(ctx, w.tx, notify.Notice{
			Org:      h.Org,
			Key:      fmt.Sprintf("scratch_failed:%s:%s", h.ID, at.Format(time.DateOnly)),
			Severity: notify.Bad,
			Object:   h.ID.String(),
			Title:    fmt.Sprintf("%s failed a node that asked for scratch", h.Name),
			Body: join("A node that was rented with scratch space failed there at "+at.Format("15:04:05")+
				" UTC and earns nothing from then on.",
				detail) + " Nodes without scratch are not concerned. `muster-agent doctor` on the host says what is to be " +
				"fixed; an agent that runs without --scratch-dir offers no scratch. You get no further notice today.",
		})
		if err == nil && added {
			w.tx.AfterCommit(func() { w.m.bus.Changed(bus.TopicOrg(h.Org)) })
		}
		return err
	})
}

// ForecastReclaim returns what it would cost if one host of who's organisation were reclaimed at once, now. Fault:
// NotFound.
func (hs *Hosts) ForecastReclaim(ctx context.Context, who account.Principal,
	of id.Host) (client.ReclaimForecast, error) {
	h, err := host.Read(ctx, hs.db.Q, of)
	if err != nil {
		return client.ReclaimForecast{}, err
	}
	if h.Org != who.Org {
		return client.ReclaimForecast{}, host.NotFound()
	}
	f, err := metering.ForecastLoss(ctx, hs.db.Q, of)
	if err != nil {
		return client.ReclaimForecast{}, err
	}
	if f.Currency == "" { // nothing runs on it
		f.Currency = hs.cfg.Currency
	}
	return client.ReclaimForecast{
		Leases:   f.Leases,
		Credit:   f.Credit,
		HostPart: f.HostPart,
		Currency: f.Currency,
		Free:     int64(metering.CreditSpan.Seconds()),
	}, nil
}
