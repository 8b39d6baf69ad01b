package db

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
)

// retryAfter is how long a caller should wait after a temporary failure: PostgreSQL restarts within seconds.
const retryAfter = 5 * time.Second

// Explain converts failures of PostgreSQL that a caller can act on into faults: an unreachable or overloaded server
// into fault.Unavailable, text that PostgreSQL cannot store into fault.Invalid. It returns other errors, including
// faults, unchanged. InTx and DB.Q explain their errors already; only code that uses DB.Pool directly needs to call it.
func Explain(err error) error {
	switch {
	case err == nil || fault.From(err) != nil:
		return err
	case isUnavailable(err):
		f := fault.Wrap(err, fault.Unavailable, "The database cannot be reached at the moment. Try again in a few seconds.")
		f.RetryAfter = retryAfter
		return f
	case isUnstorable(err):
		return fault.Wrap(err, fault.Invalid, "A text contains a character that cannot be stored, such as NUL.")
	}
	return err
}

// explainCommit is Explain for a COMMIT, whose effect is unknown if the connection breaks.
func explainCommit(err error) error {
	if err == nil || !isUnavailable(err) {
		return Explain(err)
	}
	f := fault.Wrap(err, fault.Unavailable, "The connection to the database broke, and it is unknown whether the "+
		"request took "+
		"effect. Try again in a few seconds with the same Idempotency-Key, or check first.")
	f.RetryAfter = retryAfter
	return f
}

// isUnavailable reports whether the server is unreachable, starting, stopping or out of connections, or whether a
// transaction could not get its locks in time. SQLSTATEs: https://www.postgresql.org/docs/15/errcodes-appendix.html.
func isUnavailable(err error) bool {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		switch pe.Code {
		case "40001", "40P01", "55P03", // serialization failure, deadlock, lock timeout: after all retries
			"53300", "53400", // too many connections, configuration limit exceeded
			"57P01", "57P02", "57P03", "25P03": // shutdown, crash, starting up, idle in transaction for too long
			return true
		}
		return pe.Code[:min(2, len(pe.Code))] == "08" // connection exceptions
	}
	var connect *pgconn.ConnectError
	var network *net.OpError
	return errors.As(err, &connect) || errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, errNoConnection)
}

// isUnstorable reports whether a text contains a NUL or is not UTF-8.
func isUnstorable(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && (pe.Code == "22021" || pe.Code == "22P05")
}

// IsData reports whether PostgreSQL refuses a value: it is out of range, cannot be stored, or breaks a constraint. The
// same statement would fail again.
func IsData(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && (strings.HasPrefix(pe.Code, "22") || strings.HasPrefix(pe.Code, "23"))
}

// errNoConnection is part of the error of a caller that waited for a connection of the pool until its deadline.
var errNoConnection = errors.New("no connection became free in time")

// noConnection explains why no connection was acquired.
func noConnection(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.Join(errNoConnection, err)
	}
	return err
}

// explained is the pool as a DBTX: its errors pass through Explain, and each use has its share of the connections.
type explained struct {
	dbq.DBTX
	shares shares
}

func (d explained) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	leave, err := d.shares.enter(ctx)
	if err != nil {
		return pgconn.CommandTag{}, Explain(err)
	}
	defer leave()
	tag, err := d.DBTX.Exec(ctx, sql, args...)
	return tag, Explain(err)
}

func (d explained) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	leave, err := d.shares.enter(ctx)
	if err != nil {
		return nil, Explain(err)
	}
	rows, err := d.DBTX.Query(ctx, sql, args...)
	if err != nil {
		leave()
	}
	return explainedRows{rows, leave}, Explain(err)
}

func (d explained) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	leave, err := d.shares.enter(ctx)
	if err != nil {
		return failedRow{Explain(err)}
	}
	return explainedRow{d.DBTX.QueryRow(ctx, sql, args...), leave}
}

func (d explained) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	leave, err := d.shares.enter(ctx)
	if err != nil {
		return pgx.FailedBatchResults(b, Explain(err))
	}
	return explainedBatch{d.DBTX.SendBatch(ctx, b), leave}
}

type explainedRows struct {
	pgx.Rows
	leave func()
}

func (r explainedRows) Err() error { return Explain(r.Rows.Err()) }

// Close releases the connection.
func (r explainedRows) Close() {
	r.Rows.Close()
	r.leave()
}

type explainedRow struct {
	pgx.Row
	leave func()
}

func (r explainedRow) Scan(into ...any) error {
	defer r.leave()
	return Explain(r.Row.Scan(into...))
}

type explainedBatch struct {
	pgx.BatchResults
	leave func()
}

func (b explainedBatch) Exec() (pgconn.CommandTag, error) {
	tag, err := b.BatchResults.Exec()
	return tag, Explain(err)
}

func (b explainedBatch) Query() (pgx.Rows, error) {
	rows, err := b.BatchResults.Query()
	return explainedRows{rows, func() {}}, Explain(err)
}

func (b explainedBatch) QueryRow() pgx.Row { return explainedRow{b.BatchResults.QueryRow(), func() {}} }

// Close releases the connection.
func (b explainedBatch) Close() error {
	defer b.leave()
	return Explain(b.BatchResults.Close())
}
