package outbox

import (
	"context"
	"fmt"
	"strings"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// Sending is whether requests that move money are sent to Stripe.
type Sending = client.Sending

// SendingState reads whether requests that move money are sent to Stripe.
func SendingState(ctx context.Context, q *dbq.Queries) (Sending, error) {
	row, err := q.SendingPause(ctx)
	if db.NoRows(err) {
		return Sending{}, nil
	}
	if err != nil {
		return Sending{}, fmt.Errorf("read pause of sending: %w", err)
	}
	return Sending{Paused: true, Reason: row.Reason, Since: &row.Since}, nil
}

// Sending is SendingState for admins. Fault: Forbidden.
func (o *Outbox) Sending(ctx context.Context, who account.Principal) (Sending, error) {
	if err := account.RequireStaff(who); err != nil {
		return Sending{}, err
	}
	return SendingState(ctx, o.d.Q)
}

// SetSending pauses everything that moves money at Stripe, or resumes it. Calls that are under way finish; rows that
// were written before or are written during the pause wait. New card payments are refused during the pause, so that no
// payer is charged at a time they do not expect. A second pause keeps the first one's reason. Faults: Forbidden,
// Invalid (the reason).
func (o *Outbox) SetSending(ctx context.Context, who account.Principal, paused bool, reason string,
	once idem.Request) (Sending, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return Sending{}, idem.Outcome{}, err
	}
	return idem.Once(ctx, o.d, once, func(ctx context.Context, tx *db.Tx) (Sending, error) {
		if reason = strings.TrimSpace(reason); reason == "" || len(reason) > 500 {
			return Sending{}, fault.InvalidField("reason", "must give the reason in at most 500 bytes; the audit log keeps "+
				"it")
		}
		detail := map[string]any{"reason": reason}
		act, change := who.Event("sending.resume", "", detail), tx.Q.ResumeSending
		if paused {
			act, change = who.Event("sending.pause", "", detail), func(ctx context.Context) (int64, error) {
				return tx.Q.PauseSending(ctx, reason, who.User)
			}
		}
		n, err := change(ctx)
		if err != nil {
			return Sending{}, fmt.Errorf("%s: %w", act.Action, err)
		}
		if n > 0 {
			if err := audit.Record(ctx, tx, act); err != nil {
				return Sending{}, err
			}
		}
		return SendingState(ctx, tx.Q)
	})
}

// PauseByPlatform pauses everything that moves money at Stripe without a person's request, for a reason that admins
// read. They resume it with SetSending.
func PauseByPlatform(ctx context.Context, tx *db.Tx, reason string) error {
	n, err := tx.Q.PauseSending(ctx, reason, id.User{})
	if err != nil {
		return fmt.Errorf("pause sending: %w", err)
	}
	if n == 0 {
		return nil
	}
	return audit.Record(ctx, tx, audit.Event{Action: "sending.pause", Detail: map[string]any{"reason": reason}})
}
