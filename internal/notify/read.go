package notify

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// ReadOnce is MarkRead for a request with an idempotency key. It returns the notice's id. Fault: NotFound.
func (n *Notices) ReadOnce(ctx context.Context, org id.Org, notice id.Notice, once idem.Request) (id.Notice,
	idem.Outcome, error) {
	return idem.Once(ctx, n.db, once, func(ctx context.Context, tx *db.Tx) (id.Notice, error) {
		rows, err := tx.Q.MarkNoticeRead(ctx, notice, org)
		switch {
		case err != nil:
			return id.Notice{}, fmt.Errorf("mark notice %s read: %w", notice, err)
		case rows == 0:
			return id.Notice{}, fault.New(fault.NotFound, "notice not found")
		}
		return notice, nil
	})
}

// ReadAllOnce records that a member of the org has read newest and all older notices, once per idempotency key. It
// returns newest.
func (n *Notices) ReadAllOnce(ctx context.Context, org id.Org, newest id.Notice, once idem.Request) (id.Notice,
	idem.Outcome, error) {
	return idem.Once(ctx, n.db, once, func(ctx context.Context, tx *db.Tx) (id.Notice, error) {
		if err := tx.Q.MarkNoticesRead(ctx, org, newest); err != nil {
			return id.Notice{}, fmt.Errorf("mark notices of %s read: %w", org, err)
		}
		return newest, nil
	})
}
