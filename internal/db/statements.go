package db

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/tracing"
)

// slowAfter is how long a statement, or a batch of them, takes that is logged.
const slowAfter = time.Second

// statements implements pgx's tracers of statements and batches. It logs those that take long and makes a span of each,
// by name and without arguments.
type statements struct {
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
	span  tracing.Span
	sql   string
	many  int // statements of the batch; 0: no batch
}

func (s statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	t := traced{began: time.Now(), sql: d.SQL}
	if tracing.Of(ctx).Recorded() {
		ctx, t.span = tracing.Begin(ctx, statementName(d.SQL))
	}
	return context.WithValue(ctx, statementKey{}, t)
}

func (s statements) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	if t, ok := ctx.Value(statementKey{}).(traced); ok {
		s.end(ctx, t, d.Err)
	}
}

func (s statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	t := traced{began: time.Now(), many: d.Batch.Len()}
	if t.many > 0 {
		t.sql = d.Batch.QueuedQueries[0].SQL
	}
	if tracing.Of(ctx).Recorded() {
		ctx, t.span = tracing.Begin(ctx, "batch")
		t.span.Set("statements", t.many)
		t.span.SetText("names", batchNames(d.Batch))
	}
	return context.WithValue(ctx, batchKey{}, t)
}

// batchNames returns the names of a batch's statements, each with how often it is in a row, as far as they fit.
func batchNames(b *pgx.Batch) string {
	const most = 1000
	var out strings.Builder
	for i := 0; i < len(b.QueuedQueries) && out.Len() < most; {
		name, from := statementName(b.QueuedQueries[i].SQL), i
		for i++; i < len(b.QueuedQueries) && statementName(b.QueuedQueries[i].SQL) == name; {
			i++
		}
		if out.Len() > 0 {
			out.WriteString(", ")
		}
		out.WriteString(name)
		if i-from > 1 {
			fmt.Fprintf(&out, " ×%d", i-from)
		}
	}
	return out.String()
}

func (s statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (s statements) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchEndData) {
	if t, ok := ctx.Value(batchKey{}).(traced); ok {
		s.end(ctx, t, d.Err)
	}
}

func (s statements) end(ctx context.Context, t traced, err error) {
	if t.span.Recorded() {
		t.span.End(err)
	}
	took := time.Since(t.began)
	if s.log == nil || took < s.after {
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
