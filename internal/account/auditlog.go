package account

import (
	"context"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/id"
)

// AuditLog returns what p's organisation did, newest first: at most limit events that match f and are older than before
// (zero: from the newest).
func (a *Accounts) AuditLog(ctx context.Context, p Principal, f audit.Filter, before id.Audit,
	limit int) ([]audit.Found, error) {
	f.Org = p.Org
	return audit.Own(ctx, a.db.Q, f, before, limit)
}
