package network

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/bench/table"
	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/testfield"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// How often each loss is made. A cut takes two minutes: its host has 90 s to come back.
const (
	cuts   = 3
	deaths = 3
)

// Losses holds every round, in seconds.
type Losses struct {
	Start []float64 `json:"start"` // from the request to running, before anything is lost
	Cut   []loss    `json:"cut"`   // a host's line
	Death []loss    `json:"death"` // a node's container
}

// loss is what came of one.
type loss struct {
	Stopped  float64 `json:"stopped"`  // until the cluster was no longer billed
	Replaced float64 `json:"replaced"` // until it ran on another host
	Past     float64 `json:"past"`     // how much of the time after it is billed
}

// comeBack is how long a silent rank has to come back before another host takes it (docs/losses.md).
const comeBack = 90 * time.Second

// LossRows measures, with the programs in bin, how long a lost rank is charged and missed: two hosts behind routers of
// their own, one of which is lost, and a third that takes its rank.
func LossRows(ctx context.Context, bin string) ([]table.Row, error) {
	if bin == "" {
		return nil, errors.New("MUSTER_BIN names no folder of programs")
	}
	return onBed(ctx, func(b *bed) ([]table.Row, error) {
		m, err := newMourner(b, bin)
		if err != nil {
			return nil, err
		}
		var r Losses
		for range deaths {
			if err := m.round(ctx, &r.Start, &r.Death, m.kill); err != nil {
				return nil, err
			}
		}
		for range cuts {
			if err := m.round(ctx, &r.Start, &r.Cut, m.cut); err != nil {
				return nil, err
			}
		}
		return lossRows(r), nil
	})
}

func lossRows(r Losses) []table.Row {
	of := func(all []loss, f func(loss) float64) float64 {
		var v []float64
		for _, l := range all {
			v = append(v, f(l))
		}
		return table.Median(v)
	}
	stopped, replaced := func(l loss) float64 { return l.Stopped }, func(l loss) float64 { return l.Replaced }
	start, silence := table.Median(r.Start), float64(agentapi.PeerSilenceMS)/1000
	row := func(name string, ours, baseline float64, beside string) table.Row {
		return table.Row{
			Goal:         12,
			Name:         name,
			Unit:         "s",
			Ours:         ours,
			Baseline:     baseline,
			BaselineName: beside,
			Ratio:        ours / baseline,
		}
	}
	cut := row("a host's line is cut: until nothing is charged", of(r.Cut, stopped), silence,
		"the silence that counts as a loss")
	cut.Details = r
	return []table.Row{cut,
		row("the same: until its rank runs on another host", of(r.Cut, replaced), comeBack.Seconds()+start,
			"its time to come back, and a first start"),
		row("the same: billed past the cut", of(r.Cut, func(l loss) float64 { return l.Past }), of(r.Cut, stopped),
			"until it was noticed"),
		row("a node's container dies: until nothing is charged", of(r.Death, stopped), silence,
			"the silence that counts as a loss"),
		row("the same: until its rank runs on another host", of(r.Death, replaced), start, "a first start"),
	}
}

// mourner rents, loses a host, and looks what becomes of it.
type mourner struct {
	*testfield.Field
	renter *client.Client
	bed    *bed
	victim *testfield.Box
}

func newMourner(b *bed, bin string) (*mourner, error) {
	f := testfield.New(b, bin)
	f.Box(b, "near", f.Home(testnet.Preserving), "192.168.1.1", "1.00", "192.168.1.10/24")
	m := &mourner{
		Field:  f,
		bed:    b,
		victim: f.Box(b, "far", f.Home(testnet.Preserving), "192.168.1.1", "1.00", "192.168.1.10/24"),
	}
	f.Box(b, "spare", f.Internet, "", "3.00", "203.0.113.50/24")
	m.renter, _ = f.SignUp(b, f.HTTP(b), "renter")
	top, err := m.renter.Billing.CreateTopUp(b.ctx, client.CreateTopUpRequest{Amount: (100 * money.Unit).String()})
	if err == nil && top.State != "succeeded" {
		err = fmt.Errorf("the top-up is %s", top.State)
	}
	if err != nil {
		return nil, err
	}
	// The spare has the image too: what is measured is no pull.
	c, err := m.run(3)
	if err != nil {
		return nil, err
	}
	return m, m.release(c)
}

// run rents so many nodes and returns when they run.
func (m *mourner) run(nodes int) (client.Cluster, error) {
	dear := 100 * money.Micro(money.Unit/1000)
	c, err := m.renter.Clusters.Rent(m.bed.ctx, client.Spec{
		Nodes:           nodes,
		GPUsPerNode:     1,
		Image:           m.DemoImage,
		Command:         []string{"sleep", "86400"},
		DiskGB:          1,
		OnNodeFailure:   "replace",
		MaxPricePerHour: &dear,
	})
	if err != nil {
		return c, err
	}
	return m.renter.Clusters.Wait(m.bed.ctx, c.ID, client.Running, nil)
}

// release ends a cluster and returns when all hosts are as they were.
func (m *mourner) release(c client.Cluster) error {
	if _, err := m.renter.Clusters.Release(m.bed.ctx, c.ID); err != nil {
		return err
	}
	for _, b := range m.Boxes {
		err := await(m.bed.ctx, b.Name+" is empty", func() (bool, error) { return len(b.Left()) == 0, nil })
		if err != nil {
			return err
		}
		b.AwaitSelling(m.bed)
	}
	return nil
}

// round loses the victim's rank once. lose breaks it and returns what restores it.
func (m *mourner) round(ctx context.Context, starts *[]float64, losses *[]loss, lose func() (mend func())) error {
	began := time.Now()
	c, err := m.run(2)
	if err != nil {
		return err
	}
	*starts = append(*starts, time.Since(began).Seconds())
	at := time.Now()
	mend := lose()
	defer mend()
	var l loss
	until := func(what string, after *float64, ok func(client.Cluster) bool) error {
		err := await(ctx, what, func() (bool, error) {
			now, err := m.renter.Clusters.Get(ctx, c.ID)
			if err == nil && now.State.Ended() {
				err = fmt.Errorf("%s: %s", now.State, now.Detail)
			}
			return err == nil && ok(now), err
		})
		*after = time.Since(at).Seconds()
		return err
	}
	err = until("nothing is charged any more", &l.Stopped, func(c client.Cluster) bool { return !c.Billing })
	if err == nil {
		err = until("another host runs the rank", &l.Replaced,
			func(c client.Cluster) bool { return c.State == client.Running && c.Epoch > 1 })
	}
	if err != nil {
		return err
	}
	closed, err := m.windowClosed(ctx, c)
	if err != nil {
		return err
	}
	l.Past = max(0, closed.Sub(at).Seconds())
	*losses = append(*losses, l)
	mend()
	return m.release(c)
}

// cut pulls the victim's cable.
func (m *mourner) cut() (mend func()) {
	m.victim.Link.Set(testnet.Fault{Cut: true})
	return func() { m.victim.Link.Set(testnet.Fault{}) }
}

// kill ends the container that holds the victim's node.
func (m *mourner) kill() (mend func()) {
	if !m.victim.SignalContainer("guest", "KILL") {
		m.bed.Fatal("there is no guest to kill")
	}
	return func() {}
}

// windowClosed is when a cluster's first window ended.
func (m *mourner) windowClosed(ctx context.Context, c client.Cluster) (time.Time, error) {
	db, err := pgx.Connect(ctx, m.PostgresURL)
	if err != nil {
		return time.Time{}, err
	}
	defer db.Close(ctx)
	var ms int64
	err = db.QueryRow(ctx, "SELECT closed_ms FROM cluster_window WHERE cluster_id = $1 AND n = 1", c.ID).Scan(&ms)
	return time.UnixMilli(ms), err
}
