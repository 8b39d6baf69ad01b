package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/notify"
)

// reclaim is when an operator takes a host back, and when they requested it; zero: they do not.
type reclaim struct{ at, requestedAt time.Time }

// noticed reports whether there was time to save what a credit stands for: what was computed since the last checkpoint.
func (r reclaim) noticed() bool { return r.at.Sub(r.requestedAt) >= metering.CreditSpan }

// news notifies the cluster's renter, and the operators of its hosts, of what has happened.
type news struct {
	now  time.Time
	row  *dbq.Cluster
	spec market.Spec
	out  *effects
}

// withoutIt says what happens when a node's host is gone.
func (nw *news) withoutIt() string {
	switch nw.spec.OnNodeFailure {
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
func (nw *news) notifyLeaving(n *node, says string) {
	rank := n.Rank
	title := "its host's cloud announces an interruption"
	body := fmt.Sprintf("Its host says: %s. The node goes on and is charged as before for as long as it is proven up; "+
		"the machine may vanish soon: save what you need. %s", says, nw.withoutIt())
	nw.out.events = append(nw.out.events, dbq.InsertClusterEventParams{
		ClusterID: nw.row.ID,
		At:        nw.now,
		Kind:      "host_leaving",
		Rank:      &rank,
		Title:     fmt.Sprintf("Rank %d: %s", rank, title),
		Detail:    body,
		Data:      []byte("{}"),
	})
	nw.notifyRenter("host_leaving:"+n.LeaseID.String(), []int{int(rank)}, notify.Notice{
		Severity: notify.Warn,
		Title:    fmt.Sprintf("%s, rank %d: %s", nw.row.Name, rank, title),
		Body:     body,
		Forecast: true,
	})
}

// notifyNotUploaded adds an event to the timeline and notifies the renter: what a node wrote to buckets of the renter's
// is lost in part.
func (nw *news) notifyNotUploaded(n *node, lost []agentapi.NotUploaded) {
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
	nw.out.events = append(nw.out.events, dbq.InsertClusterEventParams{
		ClusterID: nw.row.ID,
		At:        nw.now,
		Kind:      "not_uploaded",
		Rank:      &rank,
		Title:     fmt.Sprintf("Rank %d: %s", rank, title),
		Detail:    body,
		Data:      []byte("{}"),
	})
	nw.notifyRenter("not_uploaded:"+n.LeaseID.String(), []int{int(rank)}, notify.Notice{
		Severity: notify.Bad,
		Title:    fmt.Sprintf("%s, rank %d: %s", nw.row.Name, rank, title),
		Body:     body,
	})
}

// notifyReclaim adds an event to the timeline and notifies the renter.
func (nw *news) notifyReclaim(n *node, title, body string, severity notify.Severity, at time.Time) {
	rank := n.Rank
	nw.out.events = append(nw.out.events, dbq.InsertClusterEventParams{
		ClusterID: nw.row.ID,
		At:        nw.now,
		Kind:      "host_reclaim",
		Rank:      &rank,
		Title:     fmt.Sprintf("Rank %d: %s", rank, lowerFirst(title)),
		Detail:    body,
		Data:      []byte("{}"),
	})
	nw.notifyRenter(fmt.Sprintf("host_reclaim:%d:%t", at.Unix(), n.ReclaimTold != nil), []int{int(rank)},
		notify.Notice{
			Severity: severity,
			Title:    fmt.Sprintf("%s, rank %d: %s", nw.row.Name, rank, lowerFirst(title)),
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
func (nw *news) addCapEvent(n *node) {
	rank, month := n.Rank, n.capped.UTC().AddDate(0, 0, -1).Format("January")
	nw.out.events = append(nw.out.events, dbq.InsertClusterEventParams{
		ClusterID: nw.row.ID,
		At:        nw.now,
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
func (nw *news) addOwnerUseEvent(n *node, mb int64) {
	rank := n.Rank
	nw.out.events = append(nw.out.events, dbq.InsertClusterEventParams{
		ClusterID: nw.row.ID,
		At:        nw.now,
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
func (nw *news) notifyScratch(n *node, detail string) {
	at := nw.now.UTC()
	nw.out.addWrite(func(ctx context.Context, w *writer) error {
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

// notifyStrike notifies the operator of a host of a strike in a cluster of several nodes, and of its consequences. It
// does not notify of doubts, which are many and temporary: the page of the bond lists them.
func (nw *news) notifyStrike(n, other *node, kind string) {
	t := notify.Notice{
		Org:      n.operator,
		Object:   n.HostID.String(),
		Severity: notify.Warn,
		Key:      fmt.Sprintf("strike:%s:%s:%s", kind, nw.row.ID, n.LeaseID),
	}
	const three = " Three such failures or failed starts within 60 minutes keep a host out of clusters of several " +
		"nodes for an hour, then longer each time."
	switch {
	case kind == strikeLoss:
		t.Title = fmt.Sprintf("%s is not offered until %s UTC: it failed", n.hostName,
			nw.now.Add(fairness.RelistLock).UTC().Format("15:04"))
		t.Body = fmt.Sprintf("Rank %d of cluster %s was lost by the host's fault.%s To stop renting out a host, take it "+
			"back with an hour's notice: then nothing counts against it.",
			n.Rank, nw.row.ID, three)
	case kind == strikeStart:
		t.Title = fmt.Sprintf("%s started a node too late", n.hostName)
		t.Body = fmt.Sprintf("Rank %d of cluster %s started more than %.0f s after the first one, or not at all. Your "+
			"bond pays the others for that time.%s",
			n.Rank, nw.row.ID, fairness.StartSkew.Seconds(), three)
	case kind == strikeUndecided && other != nil && other.operator != n.operator:
		t.Title = fmt.Sprintf("%s and a host of another operator lost contact", n.hostName)
		t.Body = fmt.Sprintf("Ranks %d and %d of cluster %s were both well and lost contact with each other. No one is to "+
			"blame and nothing is taken from you. Hosts of that operator and yours "+
			"are not put together for 24 hours. When that happens with three operators within 24 hours, a host is in no "+
			"cluster of several nodes for an hour, then longer each time.",
			min(n.Rank, other.Rank), max(n.Rank, other.Rank), nw.row.ID)
	default:
		return
	}
	nw.out.notices = append(nw.out.notices, t)
}

// addDecidedEvent adds the outcome of pending time to the timeline.
func (nw *news) addDecidedEvent(span interval.Span, billable interval.Set, verdicts []verdict) {
	seconds := func(ms int64) string { return fmt.Sprintf("%.1f s", float64(ms)/1000) }
	lost := span.Len() - billable.Len()
	if lost == 0 {
		nw.addEvent("doubt_cleared", seconds(span.Len())+" are billed: every rank has proven that it missed nothing", "")
		return
	}
	why := ""
	for _, v := range verdicts {
		for _, s := range v.Suspensions {
			switch {
			case why != "":
			case s.Class == fairness.Platform:
				why = "Muster's servers could not receive the hosts' messages; no one is to blame"
			case s.Class == fairness.Undecided:
				why = "ranks lost contact with each other; no one is to blame, and you pay nothing for it"
			default:
				var ranks []int
				for _, k := range s.Culprits {
					ranks = append(ranks, int(v.rows[k].Rank))
				}
				if why = rankList(ranks) + " did not prove to have been up"; s.Class == fairness.Silence {
					why = rankList(ranks) + " and others lost contact with each other, and reported that late or not at all"
				}
			}
		}
	}
	nw.addEvent("not_billed", seconds(lost)+" not billed: "+why, "")
}

// blame says of a node that is lost already what is known better by now.
func (nw *news) blame(n *node, r lifecycle.Reason, why string) {
	if lifecycle.NodeState(n.State) != lifecycle.NodeLost || n.Reason == string(r) {
		return
	}
	n.Reason, n.Detail, n.dirty = string(r), why, true
	rank := n.Rank
	nw.out.events = append(nw.out.events, dbq.InsertClusterEventParams{
		ClusterID: nw.row.ID,
		At:        nw.now,
		Kind:      "node_lost",
		Rank:      &rank,
		Title:     fmt.Sprintf("Rank %d: what is wrong with it", rank),
		Detail:    join(r.Happened(), why),
		Data:      []byte("{}"),
	})
	if lifecycle.State(nw.row.State) == lifecycle.Degraded && nw.row.ReplaceUntil == nil {
		nw.row.Reason, nw.row.Detail = string(r), join(r.Happened(), fmt.Sprintf("rank %d: %s", n.Rank, why))
	}
}

// addEvent adds an event to the cluster's timeline.
func (nw *news) addEvent(kind, title, detail string) {
	nw.out.events = append(nw.out.events, dbq.InsertClusterEventParams{
		ClusterID: nw.row.ID, At: nw.now, Kind: kind, Title: title, Detail: detail, Data: []byte("{}"),
	})
}

// notifyRenter adds a notice, once per epoch and set of ranks.
func (nw *news) notifyRenter(what string, ranks []int, n notify.Notice) {
	n.Org, n.Object = nw.row.OrgID, nw.row.ID.String()
	n.Key = fmt.Sprintf("%s:%s:%d:%v", what, nw.row.ID, nw.row.Epoch, ranks)
	nw.out.notices = append(nw.out.notices, n)
}
