package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
)

// warnings are the thresholds of runway at which a renter is told, nearest first.
var warnings = []struct {
	left     time.Duration
	name     string
	severity notify.Severity
}{
	{10 * time.Minute, "10 minutes", notify.Bad},
	{time.Hour, "1 hour", notify.Warn},
	{24 * time.Hour, "24 hours", notify.Info},
}

// dip is how far a cluster's runway has sunk: the threshold of the warning given last (0: none), and how many times it
// has risen again since the beginning.
type dip struct {
	reported time.Duration
	rises    int
}

// sink says what a runway of left makes of the dip, and whether a threshold was crossed that was not told of in this
// dip. Each is told once per dip, the nearest one first: what was crossed together with it is not told any more. A dip
// ends when the runway is half as long again as the threshold told last: clusters that share a wallet take turns in
// holding its money, so that each one's runway swings a little, and auto top-up keeps it near one value.
func (d dip) sink(left time.Duration) (next dip, tell bool) {
	level := time.Duration(0)
	for i := len(warnings) - 1; i >= 0; i-- {
		if left <= warnings[i].left {
			level = warnings[i].left
		}
	}
	switch {
	case d.reported != 0 && left > d.reported+d.reported/2:
		return dip{level, d.rises + 1}, false // what is crossed still was told of on the way down
	case level != 0 && (d.reported == 0 || level < d.reported):
		return dip{level, d.rises}, true
	}
	return d, false
}

// warn tells the renter, once per threshold and dip, how long the money lasts.
func (x *lockedCluster) warn(m means) {
	left, what := x.runway(m)
	d, tell := dip{time.Duration(x.row.RunwayToldS) * time.Second, int(x.row.RunwayDips)}.sink(left)
	x.row.RunwayToldS, x.row.RunwayDips = int32(d.reported/time.Second), int32(d.rises)
	if !tell {
		return
	}
	for _, w := range warnings {
		if w.left != d.reported {
			continue
		}
		x.notices = append(x.notices, notify.Notice{
			Org:      x.row.OrgID,
			Key:      fmt.Sprintf("runway:%s:%s:%d", w.name, x.row.ID, d.rises),
			Severity: w.severity,
			Title:    fmt.Sprintf("%s has less than %s left", x.row.Name, w.name),
			Body: fmt.Sprintf("%s lasts until about %s UTC. Then the cluster is stopped in order.", what,
				x.now.Add(left).Format("15:04 on 2 January")),
			Object: x.row.ID.String(),
		})
	}
}

// means are what an organisation has and spends.
type means struct {
	burn   int64 // per hour, of all that it runs
	wallet money.Nano
}

// readMeans reads them, if money limits how long the cluster can run on.
func readMeans(ctx context.Context, q *dbq.Queries, x *lockedCluster) (m means, err error) {
	switch Reason(x.row.MoneyReason) {
	case ReasonBudgetExhausted, ReasonMaxDuration:
		return m, nil
	}
	if m.burn, err = q.OrgBurn(ctx, x.row.OrgID); err != nil {
		return m, fmt.Errorf("burn of %s: %w", x.row.OrgID, err)
	}
	m.wallet, err = ledger.Spendable(ctx, q, ledger.Wallet(x.row.OrgID, x.row.Currency))
	return m, err
}

// runway is how long the cluster can run on, and what limits it. What is held for it is the least; what lies in the
// wallet is shared by all that the org runs.
func (x *lockedCluster) runway(m means) (time.Duration, string) {
	held := max(0, deref(x.row.RunUntil).Sub(x.now))
	reach := held
	if x.reach != nil {
		reach = max(held, x.reach.Sub(x.now))
	}
	reason := Reason(x.row.MoneyReason)
	switch reason {
	case ReasonBudgetExhausted:
		return reach, "The budget"
	case ReasonMaxDuration:
		return reach, "The longest duration you set"
	}
	const month = 30 * 24 * time.Hour
	left := month
	if m.burn > 0 {
		left = held + time.Duration(min(money.MillisOf(m.wallet, money.Micro(m.burn)), month.Milliseconds()))*time.Millisecond
	}
	if reason == ReasonFundsExhausted {
		left = min(left, reach)
	}
	return left, "Your credit"
}
