package dbtest

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/db"
)

// NewMortal is New for a server that dies in the middle: its Killer determines at which statement.
func NewMortal(t testing.TB) (*db.DB, *Killer) {
	t.Helper()
	return Mortal(t, NewURL(t))
}

// Killer makes one statement or batch fail as if the server had died there: its transaction is lost.
type Killer struct {
	Left atomic.Int64 // counts down; the statement that makes it 0 fails; 0 or less: none fails
}

func (k *Killer) strike(ctx context.Context) context.Context {
	if k.Left.Add(-1) != 0 {
		return ctx
	}
	dead, cancel := context.WithCancel(ctx)
	cancel()
	return dead
}

// TraceQueryStart counts a statement.
func (k *Killer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return k.strike(ctx)
}

// TraceQueryEnd does nothing.
func (k *Killer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart counts a batch as one.
func (k *Killer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return k.strike(ctx)
}

// TraceBatchQuery does nothing.
func (k *Killer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd does nothing.
func (k *Killer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
