package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
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
func (x *change) warn(ctx context.Context) error {
	left, what, err := x.runway(ctx)
	if err != nil {
		return err
	}
	d, tell := dip{time.Duration(x.row.RunwayToldS) * time.Second, int(x.row.RunwayDips)}.sink(left)
	x.row.RunwayToldS, x.row.RunwayDips = int32(d.reported/time.Second), int32(d.rises)
	if !tell {
		return nil
	}
	for _, w := range warnings {
		if w.left != d.reported {
			continue
		}
		_, err = notify.Add(ctx, x.tx, notify.Notice{
			Org:      x.row.OrgID,
			Key:      fmt.Sprintf("runway:%s:%s:%d", w.name, x.row.ID, d.rises),
			Severity: w.severity,
			Title:    fmt.Sprintf("%s has less than %s left", x.row.Name, w.name),
			Body: fmt.Sprintf("%s lasts until about %s UTC. Then the cluster is stopped in order.", what,
				x.now.Add(left).Format("15:04 on 2 January")),
			Object: x.row.ID.String(),
		})
	}
	return err
}

// runway is how long the cluster can run on, and what limits it. What is held for it is the least; what lies in the
// wallet is shared by all that the org runs.
func (x *change) runway(ctx context.Context) (time.Duration, string, error) {
	held := max(0, deref(x.row.RunUntil).Sub(x.now))
	reach := held
	if x.reach != nil {
		reach = max(held, x.reach.Sub(x.now))
	}
	reason := Reason(x.row.MoneyReason)
	switch reason {
	case ReasonBudgetExhausted:
		return reach, "The budget", nil
	case ReasonMaxDuration:
		return reach, "The longest duration you set", nil
	}
	burn, err := x.tx.Q.OrgBurn(ctx, x.row.OrgID)
	if err != nil {
		return 0, "", fmt.Errorf("burn of %s: %w", x.row.OrgID, err)
	}
	wallet, err := ledger.Spendable(ctx, x.tx.Q, ledger.Wallet(x.row.OrgID, x.row.Currency))
	if err != nil {
		return 0, "", err
	}
	const month = 30 * 24 * time.Hour
	left := month
	if burn > 0 {
		left = held + time.Duration(min(money.MillisOf(wallet, money.Micro(burn)), month.Milliseconds()))*time.Millisecond
	}
	if reason == ReasonFundsExhausted {
		left = min(left, reach)
	}
	return left, "Your credit", nil
}
