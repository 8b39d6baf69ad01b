package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/musterhq/muster/internal/db/dbq"
)

// Queue adds a statement to a batch, written as if it ran at once: f makes exactly one query of q and returns its
// error. When the batch is sent, PostgreSQL runs its statements in the order in which they were queued, and each answer
// is handled by the f that queued it:
//
//	b := &pgx.Batch{}
//	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
//		n, err := q.InsertClaims(ctx, claims)
//		if err == nil && n < wanted {
//			err = ErrTaken // the error of the batch
//		}
//		return err
//	})
//	err := tx.Send(ctx, b)
//
// f is called twice: by Queue, to learn the statement, when the query returns an error that f must return, and with the
// answer. It must have no effect when the query fails. After the first error no other f sees its answer. Queue panics
// when f does not keep to this.
func Queue(b *pgx.Batch, f func(ctx context.Context, q *dbq.Queries) error) {
	s := &statement{}
	if err := f(context.Background(), dbq.New(s)); !errors.Is(err, errQueued) || s.count != 1 {
		panic("db: a function that is queued must make one query and return its error")
	}
	queued := b.Queue(s.sql, s.args...)
	queued.Fn = func(answers pgx.BatchResults) error {
		return f(context.Background(), dbq.New(&answer{answers}))
	}
}

// Read queues a query of one argument whose answer is put into *into.
func Read[A, T any](b *pgx.Batch, into *T, query func(*dbq.Queries, context.Context, A) (T, error), arg A) {
	Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		answer, err := query(q, ctx, arg)
		if err == nil {
			*into = answer
		}
		return err
	})
}

// Write queues a statement of one argument that answers nothing.
func Write[A any](b *pgx.Batch, query func(*dbq.Queries, context.Context, A) error, arg A) {
	Queue(b, func(ctx context.Context, q *dbq.Queries) error { return query(q, ctx, arg) })
}

// ReadNow queues a read of PostgreSQL's clock at this place in the order.
func ReadNow(b *pgx.Batch, into *time.Time) {
	b.Queue("SELECT clock_timestamp()").QueryRow(func(row pgx.Row) error {
		err := row.Scan(into)
		*into = into.UTC()
		return err
	})
}

// Send sends a batch on the connection of q in one round trip and handles its answers. Its error is the first of a
// statement or of a function that was queued. An empty batch is not sent.
func Send(ctx context.Context, q *dbq.Queries, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	return q.Conn().SendBatch(ctx, b).Close()
}

// Send is the package's Send within the transaction.
func (tx *Tx) Send(ctx context.Context, b *pgx.Batch) error { return Send(ctx, tx.Q, b) }

// errQueued is the answer of a statement that has not been sent yet.
var errQueued = errors.New("the statement is only queued")

// statement is what a query runs on to be learned: it keeps the statement and answers errQueued.
type statement struct {
	sql   string
	args  []any
	count int
}

func (s *statement) keep(sql string, args []any) {
	s.sql, s.args = sql, args
	s.count++
}

// Exec keeps the statement.
func (s *statement) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	s.keep(sql, args)
	return pgconn.CommandTag{}, errQueued
}

// Query keeps the statement.
func (s *statement) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	s.keep(sql, args)
	return nil, errQueued
}

// QueryRow keeps the statement.
func (s *statement) QueryRow(_ context.Context, sql string, args ...any) pgx.Row {
	s.keep(sql, args)
	return failedRow{errQueued}
}

// SendBatch fails: a batch is not part of another.
func (s *statement) SendBatch(_ context.Context, b *pgx.Batch) pgx.BatchResults {
	s.count++
	return pgx.FailedBatchResults(b, errNested)
}

var errNested = errors.New("a batch cannot be part of another")

// failedRow is a row that cannot be read.
type failedRow struct{ err error }

// Scan returns the error.
func (r failedRow) Scan(...any) error { return r.err }

// answer is what a query runs on when its answer has come.
type answer struct{ answers pgx.BatchResults }

// Exec returns the answer.
func (a *answer) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return a.answers.Exec()
}

// Query returns the answer.
func (a *answer) Query(context.Context, string, ...any) (pgx.Rows, error) { return a.answers.Query() }

// QueryRow returns the answer.
func (a *answer) QueryRow(context.Context, string, ...any) pgx.Row { return a.answers.QueryRow() }

// SendBatch fails: a batch is not part of another.
func (a *answer) SendBatch(_ context.Context, b *pgx.Batch) pgx.BatchResults {
	return pgx.FailedBatchResults(b, errNested)
}
