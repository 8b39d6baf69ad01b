package model

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/billing/billproof"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// moment is a cluster as one commit left it: what was known by then, and what meters and books say.
type moment struct {
	windows    [][2]int64 // as far as they may be billed
	open       bool       // the last of them
	leases     []leaseMoment
	usage      metering.Usage // what people are shown
	hold, left money.Nano     // hold; hold and wallet
}

// leaseMoment is a lease's meter and what is booked of it.
type leaseMoment struct {
	segments            [][2]int64 // taken in by then
	mark                int64      // the meter's watermark
	billed, postedMS    int64
	proven              [][2]int64
	exact               *big.Int // below the watermark
	posted, hostPosted  int64
	booked, hostsBooked int64 // by the ledger
	settled             bool
}

// look reads the cluster in one snapshot.
func (c *rental) look(ctx context.Context, d *db.DB) (m moment, err error) {
	tx, err := d.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return m, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it only read
	q := dbq.New(tx)
	if m.hold, err = ledger.Balance(ctx, q, ledger.Hold(c.renter, c.cluster, eur)); err != nil {
		return m, err
	}
	wallet, err := ledger.Balance(ctx, q, ledger.Wallet(c.renter, eur))
	if err != nil {
		return m, err
	}
	m.left = m.hold + wallet
	if m.usage, err = metering.ClusterUsage(ctx, q, c.cluster); err != nil {
		return m, err
	}
	if err := c.lookAtWindows(ctx, tx, &m); err != nil {
		return m, err
	}
	for _, l := range c.leases {
		seen, err := l.look(ctx, tx, c.cluster)
		if err != nil {
			return m, fmt.Errorf("lease %s: %w", l.id, err)
		}
		m.leases = append(m.leases, seen)
	}
	return m, nil
}

func (c *rental) lookAtWindows(ctx context.Context, tx pgx.Tx, m *moment) error {
	rows, err := tx.Query(ctx, "SELECT opened_ms, confirmed_until_ms, closed_ms FROM cluster_window WHERE cluster_id = "+
		"$1 ORDER BY n", c.cluster)
	if err != nil {
		return err
	}
	var w [2]int64
	var closed *int64
	_, err = pgx.ForEachRow(rows, []any{&w[0], &w[1], &closed}, func() error {
		if m.open = closed == nil; !m.open {
			w[1] = *closed
		}
		m.windows = append(m.windows, w)
		return nil
	})
	return err
}

func (l *leaseStory) look(ctx context.Context, tx pgx.Tx, cluster id.Cluster) (m leaseMoment, err error) {
	var flat []int64
	var exact string
	err = tx.QueryRow(ctx, `SELECT m.settled_through_ms, m.billed_ms, m.numerator::text, m.proven_ms, m.posted,
		m.posted_billed_ms, m.host_posted,
			l.settled_at IS NOT NULL, coalesce(sum(f.amount), 0), coalesce(sum(f.amount) FILTER (WHERE a.kind = 'host_pending'),
			0)
		FROM lease l JOIN lease_meter m ON m.lease_id = l.id
		LEFT JOIN ledger_tx x ON x.ref = $2 AND x.kind = 'usage' AND x.key LIKE 'usage:' || $3 || ':%'
		LEFT JOIN ledger_transfer f ON f.tx_id = x.id
		LEFT JOIN ledger_account a ON a.id = f.credit_account_id
		WHERE l.id = $1 GROUP BY l.id, m.lease_id`, l.id, cluster.String(), l.id.String()).
		Scan(&m.mark, &m.billed, &exact, &flat, &m.posted, &m.postedMS, &m.hostPosted, &m.settled, &m.booked, &m.hostsBooked)
	if err != nil {
		return m, err
	}
	var ok bool
	if m.exact, ok = new(big.Int).SetString(exact, 10); !ok {
		return m, fmt.Errorf("numerator %q", exact)
	}
	for p := range slices.Chunk(flat, 2) {
		m.proven = append(m.proven, [2]int64{p[0], p[1]})
	}
	rows, err := tx.Query(ctx, "SELECT boot_id, seq FROM usage_segment WHERE lease_id = $1", l.id)
	if err != nil {
		return m, err
	}
	type number struct {
		boot string
		seq  int64
	}
	story := map[number][2]int64{}
	for _, s := range slices.Concat(l.sent, l.late) {
		story[number{s.BootID, s.Seq}] = [2]int64{s.StartMS, s.EndMS}
	}
	var n number
	_, err = pgx.ForEachRow(rows, []any{&n.boot, &n.seq}, func() error {
		s, honest := story[n]
		if !honest {
			return fmt.Errorf("%s %d was taken in and never sent", n.boot, n.seq)
		}
		m.segments = append(m.segments, s)
		return nil
	})
	return m, err
}

// judge compares a moment with the oracle's view of what was known by then; nil: there is nothing to say.
func (c *rental) judge(m moment) error {
	cost, posted, promised := new(big.Int), money.Nano(0), new(big.Int)
	if err := c.judgeWindows(m); err != nil {
		return err
	}
	ahead := m.windows // what may still be billed: the windows, and all time after them while it lives
	if after := c.life; !c.ended {
		if len(ahead) > 0 {
			after[0] = ahead[len(ahead)-1][1]
		}
		ahead = append(slices.Clone(ahead), after)
	}
	for i, l := range c.leases {
		of := m.leases[i]
		f := l.facts
		f.segments, f.windows = of.segments, m.windows
		now := f.judge()
		if err := of.judge(f, now, m.open); err != nil {
			return fmt.Errorf("lease %s: %w", l.id, err)
		}
		cost.Add(cost, now.renter)
		posted += money.Nano(of.posted)
		if !of.settled {
			promised.Add(promised, f.within(ahead...).judge().renter)
			promised.Sub(promised, big.NewInt(of.posted))
		}
	}
	accrued := new(big.Int).Sub(cost, big.NewInt(int64(posted)))
	hold := big.NewInt(int64(m.hold))
	switch {
	case hold.Cmp(accrued) < 0:
		return fmt.Errorf("cluster %s: %s nano-units are proven and not booked, %s is held", c.cluster, accrued, m.hold)
	case hold.Cmp(promised) < 0:
		return fmt.Errorf("cluster %s: %s nano-units may still be charged, %s is held", c.cluster, promised, m.hold)
	case m.left+posted != c.funds:
		return fmt.Errorf("cluster %s: %s left and %s charged of %s", c.cluster, m.left, posted, c.funds)
	case cost.Cmp(big.NewInt(int64(m.usage.Cost))) != 0 || m.usage.Posted != posted:
		return fmt.Errorf("cluster %s: shown are a cost of %s, booked %s; the oracle says %s, the meters %s",
			c.cluster, m.usage.Cost, m.usage.Posted, cost, posted)
	}
	return nil
}

// judgeWindows compares the windows with the steps that moved time. Where all nodes were replaced early, there is
// nothing to open or to confirm a window for.
func (c *rental) judgeWindows(m moment) error {
	var last int64
	for _, l := range c.leases {
		last = max(last, l.facts.life[1])
	}
	for i, w := range m.windows {
		if i >= len(c.windows) || w[0] != c.windows[i][0] {
			return fmt.Errorf("cluster %s: window %d from %d, the story has %v", c.cluster, i, w[0], c.windows)
		}
		open := m.open && i+1 == len(m.windows)
		if !slices.ContainsFunc(c.steps, func(s step) bool {
			return !s.settle && s.open == w[0] && max(s.open, min(s.until, last)) == w[1] && s.close == !open
		}) {
			return fmt.Errorf("cluster %s: window %d goes to %d (open: %v), and time never did that: %v", c.cluster, i, w[1],
				open, c.steps)
		}
	}
	return nil
}

// judge compares one lease: f is what is known of it, now what the oracle makes of that, and open whether a window is.
func (m leaseMoment) judge(f facts, now verdict, open bool) error {
	below := f.before(m.mark).judge()
	due := f.before(m.mark).within(f.windows...).judge()
	switch {
	case m.exact.Cmp(below.exact) != 0 || m.billed != below.ms:
		return fmt.Errorf("the meter says %s for %d ms up to %d, the oracle %s for %d ms", m.exact, m.billed, m.mark,
			below.exact, below.ms)
	case due.ms != below.ms && !m.settled:
		return fmt.Errorf("the meter is at %d, past %d ms that may still be proven", m.mark, due.ms-below.ms)
	case !slices.Equal(m.proven, f.from(m.mark)):
		return fmt.Errorf("the meter has %v proven after %d, the oracle %v", m.proven, m.mark, f.from(m.mark))
	case now.renter.Cmp(big.NewInt(m.posted)) < 0 || now.host.Cmp(big.NewInt(m.hostPosted)) < 0 || now.ms < m.postedMS:
		return fmt.Errorf("booked are %d (host %d) for %d ms; proven are %s (host %s) for %d ms", m.posted, m.hostPosted,
			m.postedMS, now.renter, now.host, now.ms)
	case m.booked != m.posted || m.hostsBooked != m.hostPosted:
		return fmt.Errorf("the ledger holds %d (host %d), the meter %d (host %d)", m.booked, m.hostsBooked, m.posted,
			m.hostPosted)
	case now.ms-m.postedMS >= mostWaiting(m.postedMS):
		return fmt.Errorf("%d ms are proven and not booked", now.ms-m.postedMS)
	case !open && now.ms != m.postedMS:
		return fmt.Errorf("no window is open, and %d ms are proven and not booked", now.ms-m.postedMS)
	case !open && now.renter.Cmp(big.NewInt(m.posted)) != 0:
		return fmt.Errorf("no window is open; booked are %d, proven %s", m.posted, now.renter)
	}
	return nil
}

// mostWaiting bounds what may be proven of a running lease and not booked, which is less: a quarter of what is booked,
// but at least 15 minutes and at most an hour.
func mostWaiting(booked int64) int64 {
	switch {
	case booked < 3_600_000:
		return 900_000
	case booked > 14_400_000:
		return 3_600_000
	}
	return booked / 4
}

// mustHold looks at the cluster and has the moment judged.
func (c *rental) mustHold(t *testing.T, d *db.DB) (m moment) {
	t.Helper()
	m, err := c.look(t.Context(), d)
	if err == nil {
		err = c.judge(m)
	}
	if err != nil {
		t.Error(err)
	}
	return m
}

// checkWaiting fetches the proof, which can be requested at any moment, and checks it with the code with which renters
// check theirs: no more is booked than is proven, less than a step of each lease waits, and all that
// waits is held.
func (c *rental) checkWaiting(t *testing.T, d *db.DB) {
	t.Helper()
	hold, err := ledger.Balance(context.Background(), d.Q, ledger.Hold(c.renter, c.cluster, eur)) // before: it only falls
	if err != nil {
		t.Error(err)
		return
	}
	f, err := metering.NewLeases(d).ClusterProof(context.Background(), c.cluster)
	if err != nil {
		t.Error(err)
		return
	}
	v := billproof.Verify(f)
	if len(v.Problems) > 0 {
		t.Errorf("cluster %s: %v", c.cluster, v.Problems)
	}
	var waits money.Nano
	for i, l := range v.Leases {
		if ms := l.MS - f.Leases[i].BilledMS; ms >= mostWaiting(f.Leases[i].BilledMS) {
			t.Errorf("lease %s: %d ms are proven and not booked", l.Lease, ms)
		}
		waits += l.NotBooked
	}
	if hold < waits {
		t.Errorf("cluster %s: %s wait, %s is held", c.cluster, waits, hold)
	}
}
