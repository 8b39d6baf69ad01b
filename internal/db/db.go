// Package db is the only access to PostgreSQL: the pool, the transaction wrapper and the migrations.
//
// A use case is one transaction (InTx); inside its closure use only the Tx. Every table is written only by the query
// file of the package that owns it (queries/<owner>.sql, compiled by sqlc into dbq); internal/testing/archtest checks
// this.
//
// Locks are always taken in one order, and within a kind by id: idempotency key → cluster → host → gpu → meter → ledger
// account → series of documents (which PostgreSQL locks itself at the commit).
package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/tracing"
)

// DB is a pool of connections. It is safe for concurrent use.
type DB struct {
	Pool *pgxpool.Pool
	// Q runs single statements outside a transaction, for reads.
	Q *dbq.Queries

	shares shares
}

// Config says how to connect to PostgreSQL.
type Config struct {
	URL      string // postgres://…; secret
	MaxConns int32  // 0 = 16
	// RefuseNested makes the pool refuse, with ErrNested, a connection to a context that an open transaction gave to its
	// closure. It is for tests: a use case that waits for a second connection while it holds one can deadlock the whole
	// pool.
	RefuseNested bool
	Log          *slog.Logger // of statements that take a second or more; nil: none is logged
}

// ErrNested is the pool's error under Config.RefuseNested.
var ErrNested = errors.New("the pool was asked for a connection inside a transaction: use the Tx, or ask before " +
	"it begins")

// Open connects. It does not migrate; see Migrate. The caller closes the DB.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		// pgx quotes the URL, which contains the password, in its error.
		return nil, errors.New("the PostgreSQL address cannot be read: want postgres://user:password@host:port/database")
	}
	pc.MaxConns = cfg.MaxConns
	if pc.MaxConns == 0 {
		pc.MaxConns = 16
	}
	pc.ConnConfig.RuntimeParams["application_name"] = "muster"
	pc.ConnConfig.RuntimeParams["timezone"] = "UTC"
	pc.ConnConfig.DialFunc = dialer().DialContext
	pc.AfterConnect = prepareSession
	pc.ConnConfig.Tracer = statements{cfg.Log, slowAfter}
	if cfg.RefuseNested {
		pc.PrepareConn = func(ctx context.Context, _ *pgx.Conn) (bool, error) {
			if open, _ := ctx.Value(openTx{}).(*atomic.Bool); open != nil && open.Load() {
				return true, ErrNested
			}
			return true, nil
		}
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	return New(pool), nil
}

// New returns the DB of a pool that the caller has made. Close closes the pool.
func New(pool *pgxpool.Pool) *DB {
	s := newShares(pool.Config().MaxConns)
	return &DB{Pool: pool, Q: dbq.New(explained{pool, s}), shares: s}
}

// session holds the settings of every connection.
//
// A replica that is stopped in the middle of a transaction, or that vanishes from the network, must not keep its locks:
// PostgreSQL ends a transaction that is idle for 15 s, and a connection whose bytes are not acknowledged for 20 s. A
// transaction that waits longer than 10 s for a lock is aborted and retried once (see InTx). No statement of a use case
// or of a job runs for longer than two minutes; those that read the whole ledger set a longer limit (SET LOCAL
// statement_timeout).
//
// force_generic_plan makes PostgreSQL plan each prepared statement once per connection. By default it would plan every
// statement that takes an array again at every execution, because it assumes ten elements for an unknown array; that
// took more time than running them. All statements find their rows by a key, whatever the values.
//
// jit is off: PostgreSQL would compile a statement again at every execution if its estimated cost is high, which takes
// tens of milliseconds. Generic plans over arrays have high estimates, and read few rows.
const settings = `SET plan_cache_mode = force_generic_plan;
SET jit = off;
SET idle_in_transaction_session_timeout = '15s';
SET lock_timeout = '10s';
SET statement_timeout = '2min';
SET tcp_user_timeout = '20s'`

func prepareSession(ctx context.Context, c *pgx.Conn) error {
	_, err := c.PgConn().Exec(ctx, settings).ReadAll()
	return err
}

// dialer detects within about 20 s that PostgreSQL's machine is gone.
func dialer() *net.Dialer {
	return &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable:   true,
		Idle:     10 * time.Second,
		Interval: 5 * time.Second,
		Count:    2,
	}}
}

// openTx is the context key of the transaction in whose closure a context is used; its value becomes false when the
// transaction ends, because effects after the commit may run on the same context.
type openTx struct{}

// Ping reports whether PostgreSQL answers, as an error if it does not.
func (d *DB) Ping(ctx context.Context) error { return d.Pool.Ping(ctx) }

// Close closes all connections.
func (d *DB) Close() { d.Pool.Close() }

// Tx is one open transaction.
type Tx struct {
	dbq.DBTX
	Q *dbq.Queries
	// Last are the last writes of the transaction: they are sent with the commit, in one round trip, after the closure of
	// InTx has returned nil. If PostgreSQL rejects them, InTx returns its error. Functions that were queued with Queue get
	// their answers after the commit, too late to prevent it. Once Last is set, the transaction accepts no statement.
	Last  *pgx.Batch
	after []func()
	db    *DB
}

// AfterCommit runs f after the transaction has committed, in order of registration, and never if it rolls back. It is
// for effects that may be lost without harm: wakes, page events.
func (tx *Tx) AfterCommit(f func()) {
	tx.after = append(tx.after, f)
}

// AfterCommitTx runs f in a transaction of its own after this one has committed, before InTx returns. Its error is
// dropped: it is for writes that are repaired elsewhere if they are lost.
func (tx *Tx) AfterCommitTx(ctx context.Context, f func(ctx context.Context, tx *Tx) error) {
	d := tx.db
	tx.AfterCommit(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = d.InTx(ctx, f)
	})
}

// Now returns PostgreSQL's clock at this moment, not at the transaction's start: read it after taking locks.
func (tx *Tx) Now(ctx context.Context) (time.Time, error) {
	var t time.Time
	err := tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&t)
	return t.UTC(), err
}

const maxTries = 5

// InTx runs f in one READ COMMITTED transaction and commits when f returns nil. It retries serialization failures and
// deadlocks (SQLSTATE 40001, 40P01), and a lock timeout (55P03) once, because each takes 10 s in which the caller keeps
// a connection. So f must have no effect outside the transaction except through AfterCommit.
func (d *DB) InTx(ctx context.Context, f func(ctx context.Context, tx *Tx) error) error {
	timeouts := 0
	for try := 1; ; try++ {
		after, err := d.traced(ctx, f)
		if err == nil {
			for _, g := range after { // the connection is returned: g may request another one
				g()
			}
			return nil
		}
		if hasCode(err, "55P03") {
			timeouts++
		}
		if try == maxTries || timeouts > 1 || !hasCode(err, "40001", "40P01", "55P03") {
			return Explain(err)
		}
		select {
		case <-ctx.Done():
			return Explain(err)
		case <-time.After(time.Duration(rand.IntN(10*try)+1) * time.Millisecond):
		}
	}
}

// InSnapshot runs f in one REPEATABLE READ, read-only transaction: everything that f reads is from one moment. It is
// not retried. Its statements may take an hour, because such reads may sum the whole ledger, or until the deadline of
// ctx.
func (d *DB) InSnapshot(ctx context.Context, f func(ctx context.Context, q *dbq.Queries) error) error {
	leave, err := d.shares.enter(ctx)
	if err != nil {
		return Explain(err)
	}
	defer leave()
	tx, err := d.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return Explain(fmt.Errorf("begin a snapshot: %w", noConnection(err)))
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing was written
	limit := time.Hour
	if until, ok := ctx.Deadline(); ok {
		limit = max(time.Millisecond, min(limit, time.Until(until)))
	}
	if _, err := tx.Exec(ctx, "SELECT set_config('statement_timeout', $1, true)",
		strconv.FormatInt(limit.Milliseconds(), 10)); err != nil {
		return Explain(fmt.Errorf("begin a snapshot: %w", err))
	}
	return Explain(f(ctx, dbq.New(tx)))
}

// traced is transact in a span.
func (d *DB) traced(ctx context.Context, f func(ctx context.Context, tx *Tx) error) (after []func(), err error) {
	if !tracing.Of(ctx).Recorded() {
		return d.transact(ctx, f)
	}
	ctx, span := tracing.Begin(ctx, "transaction")
	defer func() { span.End(err) }()
	return d.transact(ctx, f)
}

// transact runs f in one transaction and commits it together with its last writes. It returns what is registered with
// AfterCommit.
func (d *DB) transact(ctx context.Context, f func(ctx context.Context, tx *Tx) error) (after []func(), err error) {
	leave, err := d.shares.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	c, err := d.Pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", noConnection(err))
	}
	defer c.Release()
	tx := &Tx{db: d}
	s := &session{conn: c.Conn(), last: &tx.Last}
	defer s.end() // does nothing after a commit
	tx.DBTX, tx.Q = s, dbq.New(s)
	open := new(atomic.Bool)
	open.Store(true)
	defer open.Store(false)
	if err := f(context.WithValue(ctx, openTx{}, open), tx); err != nil {
		return nil, err
	}
	if tx.Last == nil && !s.begun { // there was no statement
		return tx.after, nil
	}
	b := &pgx.Batch{}
	if tx.Last != nil {
		b = tx.Last
	}
	if !s.begun {
		b, s.begun = begin(b), true
	}
	b.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		if tag.String() == "ROLLBACK" { // a statement had failed, and the use case continued
			return pgx.ErrTxCommitRollback
		}
		return nil
	})
	if err := s.conn.SendBatch(ctx, b).Close(); err != nil {
		return nil, explainCommit(fmt.Errorf("commit: %w", err))
	}
	return tx.after, nil
}

func hasCode(err error, codes ...string) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && slices.Contains(codes, pe.Code)
}

// IsUnique reports whether err is a violation of the named unique constraint or index ("" = any).
func IsUnique(err error, constraint string) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && pe.Code == "23505" && (constraint == "" || pe.ConstraintName == constraint)
}

// NoRows reports whether err means that a single-row query found no row.
func NoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
