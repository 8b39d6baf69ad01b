package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/musterhq/muster/internal/db/dbq"
)

// Pipe gathers statements that do not depend on each other's answers, sends them in one round trip, and reads the
// answers in order. PostgreSQL runs them one after the other, each seeing what those before it did.
//
//	p := db.NewPipe(q)
//	rows := p.Q.SomeBatchMany(ctx, args) // a query that sqlc generates as :batchmany or :batchone
//	p.Q.SomeExec(ctx, …)                 // says nil now; what goes wrong is said by Close
//	p.Send(ctx)
//	rows.Query(db.Keep(p, &got)) // in the order they were asked
//	err := p.Close()
//
// Before Send only :exec, :batchexec, :batchmany and :batchone queries may be called. A Pipe is used once.
type Pipe struct {
	Q *dbq.Queries

	conn  dbq.DBTX
	batch pgx.Batch
	sent  pgx.BatchResults
	next  int // answer to be read
	err   error
}

// NewPipe gathers statements for what q runs on: a transaction or the pool.
func NewPipe(q *dbq.Queries) *Pipe {
	p := &Pipe{conn: q.Conn()}
	p.Q = dbq.New(p)
	return p
}

// Pipe gathers statements for the transaction. The second result is a Tx for functions that take one and only make
// statements a Pipe allows.
func (tx *Tx) Pipe() (*Pipe, *Tx) {
	p := NewPipe(tx.Q)
	return p, &Tx{DBTX: p, Q: p.Q, outer: tx}
}

// Together sends all that f writes in one round trip. What f calls may make only :exec and :batchexec statements; they
// say nil, and the first that goes wrong is Together's error.
func (tx *Tx) Together(ctx context.Context, f func(ctx context.Context, tx *Tx) error) error {
	p, inner := tx.Pipe()
	if err := f(ctx, inner); err != nil {
		return err
	}
	p.Send(ctx)
	return p.Close()
}

// Now asks for PostgreSQL's clock at this place in the order. The answer is read by calling the result, after Send.
func (p *Pipe) Now() func() time.Time {
	b := &pgx.Batch{}
	b.Queue("SELECT clock_timestamp()")
	answer := p.SendBatch(context.Background(), b) // nothing is sent yet
	return func() time.Time {
		var t time.Time
		if err := answer.QueryRow().Scan(&t); err != nil && p.err == nil {
			p.err = err
		}
		return t.UTC()
	}
}

// Keep is the callback that puts the answer of a :batchone or :batchmany query into a variable; its error is Close's.
func Keep[T any](p *Pipe, into *T) func(int, T, error) {
	return func(_ int, v T, err error) {
		*into = v
		if p.err == nil {
			p.err = err
		}
	}
}

// Send sends everything. Errors come with the answers.
func (p *Pipe) Send(ctx context.Context) {
	if p.sent == nil && p.batch.Len() > 0 {
		p.sent = p.conn.SendBatch(ctx, &p.batch)
	}
}

// Close reads the answers that nobody has read and returns the first error among them. Call it before the connection is
// used again.
func (p *Pipe) Close() error {
	if p.sent == nil {
		return errors.Join(p.err, errIf(p.batch.Len() > 0, "db: a pipe was closed and never sent"))
	}
	p.readTo(p.batch.Len())
	if err := p.sent.Close(); p.err == nil {
		p.err = err
	}
	return p.err
}

// readTo reads the answers before the i-th.
func (p *Pipe) readTo(i int) {
	for ; p.next < i; p.next++ {
		if _, err := p.sent.Exec(); err != nil && p.err == nil {
			p.err = err
		}
	}
}

func errIf(is bool, text string) error {
	if is {
		return errors.New(text)
	}
	return nil
}

var errReads = errors.New("db: a pipe takes no statement whose answer is wanted at once")

// Exec queues a statement.
func (p *Pipe) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	p.batch.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}

// Query refuses.
func (p *Pipe) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, errReads }

// QueryRow refuses.
func (p *Pipe) QueryRow(context.Context, string, ...any) pgx.Row { return refusal{} }

// SendBatch queues the statements of b; its answers are read through what it returns.
func (p *Pipe) SendBatch(_ context.Context, b *pgx.Batch) pgx.BatchResults {
	from := p.batch.Len()
	for _, q := range b.QueuedQueries {
		p.batch.Queue(q.SQL, q.Arguments...)
	}
	return &answers{pipe: p, next: from}
}

type refusal struct{}

func (refusal) Scan(...any) error { return errReads }

// answers are those of a few statements of a pipe.
type answers struct {
	pgx.BatchResults // nil: only what is below is ever called
	pipe             *Pipe
	next             int
}

// Exec reads an answer, or says nil before the pipe was sent: Close will say what went wrong.
func (a *answers) Exec() (pgconn.CommandTag, error) {
	if a.pipe.sent == nil {
		return pgconn.CommandTag{}, nil
	}
	a.turn()
	return a.pipe.sent.Exec()
}

func (a *answers) Query() (pgx.Rows, error) {
	if a.pipe.sent == nil {
		return nil, errReads
	}
	a.turn()
	return a.pipe.sent.Query()
}

func (a *answers) QueryRow() pgx.Row {
	if a.pipe.sent == nil {
		return refusal{}
	}
	a.turn()
	return a.pipe.sent.QueryRow()
}

// turn makes the next answer to be read this one's.
func (a *answers) turn() {
	a.pipe.readTo(a.next)
	a.next++
	a.pipe.next = a.next
}

// Close leaves the pipe open for the others.
func (a *answers) Close() error { return nil }
