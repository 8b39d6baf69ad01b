package host

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// MaxNotice is how far ahead the end of what runs on a host can be set.
const MaxNotice = 30 * 24 * time.Hour

// Reclaim takes one of the org's hosts back: from now on nothing new is rented on it, and what still runs there ends
// after the notice, which may be nothing. It returns when that is. Said again, the new time counts; Resume takes it
// back. fault.Invalid for a notice that is none, fault.Conflict for a host that is not on the market.
func Reclaim(ctx context.Context, tx *db.Tx, b *bus.Bus, who account.Principal, host id.Host,
	notice time.Duration) (time.Time, error) {
	if notice < 0 || notice > MaxNotice {
		return time.Time{}, fault.InvalidField("notice", "want 0 to %d seconds", int64(MaxNotice.Seconds()))
	}
	h, err := lockOwn(ctx, tx, who.Org, host)
	if err != nil {
		return time.Time{}, err
	}
	if h.State != Active && h.State != Draining {
		return time.Time{}, fault.New(fault.Conflict, "The host is %s.", h.State)
	}
	at, err := tx.Q.ReclaimHost(ctx, int32(notice.Seconds()), host)
	if err != nil || at == nil {
		return time.Time{}, fmt.Errorf("host: take %s back: %w", host, err)
	}
	publish(tx, b, h)
	return at.UTC(), audit.Record(ctx, tx, who.Event("host.reclaim", host.String(),
		map[string]any{"notice_seconds": int64(notice.Seconds()), "at": at.UTC()}))
}
