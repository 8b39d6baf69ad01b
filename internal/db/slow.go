package db

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// slowAfter is how long a statement, or a batch of them, takes that is logged.
const slowAfter = time.Second

// slow logs statements that take long, by their names, never with their arguments. It implements pgx's tracers of
// statements and batches.
type slow struct {
	log   *slog.Logger
	after time.Duration
}

type (
	statementKey struct{}
	batchKey     struct{}
)

// traced is a statement, or the first of a batch, under way.
type traced struct {
	began time.Time
	sql   string
	many  int // statements of the batch; 0: no batch
}

func (s slow) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, statementKey{}, traced{began: time.Now(), sql: d.SQL})
}

func (s slow) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	if t, ok := ctx.Value(statementKey{}).(traced); ok {
		s.end(ctx, t, d.Err)
	}
}

func (s slow) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	t := traced{began: time.Now(), many: d.Batch.Len()}
	if t.many > 0 {
		t.sql = d.Batch.QueuedQueries[0].SQL
	}
	return context.WithValue(ctx, batchKey{}, t)
}

func (s slow) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (s slow) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchEndData) {
	if t, ok := ctx.Value(batchKey{}).(traced); ok {
		s.end(ctx, t, d.Err)
	}
}

func (s slow) end(ctx context.Context, t traced, err error) {
	took := time.Since(t.began)
	if took < s.after {
		return
	}
	attrs := []slog.Attr{slog.String("statement", statementName(t.sql)), slog.Duration("took", took)}
	if t.many > 0 {
		attrs = append(attrs, slog.Int("batch", t.many))
	}
	if err != nil {
		attrs = append(attrs, slog.Any("err", err))
	}
	s.log.LogAttrs(ctx, slog.LevelWarn, "a slow statement", attrs...)
}

// statementName is the name that sqlc wrote into a statement's first line ("-- name: Hosts :many"), else its first
// word.
func statementName(sql string) string {
	if rest, ok := strings.CutPrefix(sql, "-- name: "); ok {
		name, _, _ := strings.Cut(rest, " ")
		return name
	}
	word, _, _ := strings.Cut(strings.TrimSpace(sql), " ")
	return strings.TrimSpace(word)
}
