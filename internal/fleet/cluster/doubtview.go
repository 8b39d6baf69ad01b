package cluster

import (
	"context"
	"fmt"
	"time"
)

// Doubt says that a cluster is not billed at the moment because a rank is not proven up, and what comes of it.
type Doubt struct {
	Kind  string    `json:"kind" enum:"silent,disputed" doc:"silent: ranks do not answer, and the time is billed if they prove later that they missed nothing. disputed: ranks do not hear each other, and the time is not billed"`
	Since time.Time `json:"since" doc:"not billed since then"`
	Ranks []int     `json:"ranks" doc:"that do not answer, or do not hear each other"`
	// Until is when the rank is given up.
	Until *time.Time `json:"until" doc:"when it is decided at the latest; null: not known"`
	Then  string     `json:"then" enum:"end,replace,go_on" doc:"what happens then: the cluster ends, another host takes the rank, or the others go on without it"`
	Why   string     `json:"why" doc:"the same in sentences, times in UTC"`
}

// doubtOf returns why the cluster is not billed at the moment; nil when it is, or when nothing is in doubt.
func (c *Clusters) doubtOf(ctx context.Context, v Cluster) (*Doubt, error) {
	if v.State != Degraded && v.State != Running || v.RunningAt == nil || v.Billing || v.Replacing != nil {
		return nil, nil
	}
	row, err := c.db.Q.DoubtNow(ctx, v.ID)
	if err != nil {
		return nil, fmt.Errorf("doubt about %s: %w", v.ID, err)
	}
	d := Doubt{Kind: "silent", Then: "end"}
	switch v.Spec.OnNodeFailure {
	case "replace":
		d.Then = "replace"
	case "ignore":
		d.Then = "go_on"
	}
	if row.DisputedMs != 0 {
		d.Kind = "disputed"
		d.Since, d.Why = time.UnixMilli(row.DisputedMs).UTC(), "do not hear each other; nobody is to blame, you pay "+
			"nothing for it."
		for _, r := range row.Disputed {
			d.Ranks = append(d.Ranks, int(r))
		}
		if d.Since.Sub(*v.RunningAt) >= c.cfg.Young { // of a younger run the grace depends on its last start
			until := d.Since.Add(c.cfg.UndGrace)
			d.Until = &until
		}
	} else if lost := v.lost(); len(lost) > 0 {
		d.Why = "does not answer."
		if len(lost) > 1 {
			d.Why = "do not answer."
		}
		until := lost[0].Since
		for _, n := range lost {
			d.Ranks = append(d.Ranks, n.Rank)
			if n.Since.Before(until) {
				until = n.Since
			}
		}
		until = until.Add(c.cfg.LossGrace).UTC()
		d.Since, d.Until = lost[0].Since.UTC(), &until
	} else {
		return nil, nil
	}
	if row.DoubtMs != 0 {
		d.Since = time.UnixMilli(row.DoubtMs).UTC()
	}
	d.Why = fmt.Sprintf("Not billed since %s: %s %s", clockUTC(d.Since), v.named(d.Ranks), d.Why)
	if d.Until != nil {
		d.Why += " " + d.then()
	}
	return &d, nil
}

// then says what happens when the doubt lasts.
func (d Doubt) then() string {
	at := clockUTC(*d.Until)
	switch d.Then {
	case "replace":
		return "Ends or is replaced at " + at + "."
	case "go_on":
		return "The other ranks go on without it from " + at + "."
	}
	return "The cluster ends at " + at + "."
}

func clockUTC(t time.Time) string { return t.UTC().Format("15:04:05") }

// lost are the required nodes that are lost.
func (v Cluster) lost() (out []Node) {
	for _, n := range v.Nodes {
		if n.Required && n.State == NodeLost {
			out = append(out, n)
		}
	}
	return out
}

// named is "rank 1 (host lisbon-3)" or "ranks 0 and 1".
func (v Cluster) named(ranks []int) string {
	if len(ranks) != 1 {
		return rankList(ranks)
	}
	for _, n := range v.Nodes {
		if n.Rank == ranks[0] {
			return fmt.Sprintf("rank %d (host %s)", n.Rank, n.HostName)
		}
	}
	return rankList(ranks)
}

// withDoubt adds to a cluster why it is not billed at the moment.
func (c *Clusters) withDoubt(ctx context.Context, v Cluster, err error) (Cluster, error) {
	if err != nil {
		return v, err
	}
	v.Doubt, err = c.doubtOf(ctx, v)
	return v, err
}
