package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/musterhq/muster/internal/db/dbq"
)

// session is the connection of one transaction. BEGIN is sent with the first statement and COMMIT with the last ones,
// those of Tx.Last: neither costs a round trip of its own.
type session struct {
	conn  *pgx.Conn
	begun bool
	last  **pgx.Batch // Tx.Last: once it is set, no statement is accepted
}

var _ dbq.DBTX = (*session)(nil)

var errAfterLast = errors.New("a statement after those that go along with the commit")

// first is a batch that begins the transaction and holds one statement; nil when it has begun.
func (s *session) first(sql string, args []any) *pgx.Batch {
	if s.begun {
		return nil
	}
	b := &pgx.Batch{}
	b.Queue(sql, args...)
	return b
}

// Exec runs one statement.
func (s *session) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if *s.last != nil {
		return pgconn.CommandTag{}, errAfterLast
	}
	b := s.first(sql, args)
	if b == nil {
		return s.conn.Exec(ctx, sql, args...)
	}
	r := s.SendBatch(ctx, b)
	tag, err := r.Exec()
	if closing := r.Close(); err == nil {
		err = closing
	}
	return tag, err
}

// Query runs one statement and reads its rows.
func (s *session) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if *s.last != nil {
		return nil, errAfterLast
	}
	b := s.first(sql, args)
	if b == nil {
		return s.conn.Query(ctx, sql, args...)
	}
	r := s.SendBatch(ctx, b)
	rows, err := r.Query()
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return &onlyRows{rows, r}, nil
}

// QueryRow runs one statement and reads its first row.
func (s *session) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := s.Query(ctx, sql, args...)
	return onlyRow{rows, err}
}

// SendBatch runs several statements in one round trip.
func (s *session) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if *s.last != nil {
		return pgx.FailedBatchResults(b, errAfterLast)
	}
	if s.begun {
		return s.conn.SendBatch(ctx, b)
	}
	s.begun = true
	r := s.conn.SendBatch(ctx, begin(b))
	_, _ = r.Exec() // what is wrong with BEGIN is wrong with all that follows
	return r
}

// begin is b after the statement that begins a transaction.
func begin(b *pgx.Batch) *pgx.Batch {
	with := &pgx.Batch{}
	with.Queue("BEGIN")
	with.QueuedQueries = append(with.QueuedQueries, b.QueuedQueries...)
	return with
}

// end leaves the connection as it should be found: what is still open is rolled back, and a connection on which that
// fails is closed.
func (s *session) end() {
	if !s.begun || s.conn.IsClosed() || s.conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := s.conn.Exec(ctx, "ROLLBACK"); err != nil {
		_ = s.conn.Close(ctx)
	}
}

// onlyRows are the rows of a batch's only statement; closing them ends the batch.
type onlyRows struct {
	pgx.Rows
	batch pgx.BatchResults
}

func (r *onlyRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *onlyRows) Close() {
	r.Rows.Close()
	_ = r.batch.Close() // its error is the rows'
}

type onlyRow struct {
	rows pgx.Rows
	err  error
}

// Scan reads the row, or says pgx.ErrNoRows.
func (r onlyRow) Scan(into ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(into...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
