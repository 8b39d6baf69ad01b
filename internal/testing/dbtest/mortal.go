package dbtest

import (
	"context"
	"strings"
	"sync"
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
	// Statements counts up: every statement, also each one of a batch.
	Statements atomic.Int64

	mu        sync.Mutex
	recording bool
	seen      int64
	committed bool // since the last of deaths
	deaths    []int64
	at        map[string]int // how many of deaths are at a statement or batch with this text
}

// deathsAtOne is how many deaths at the same statement Record names.
const deathsAtOne = 5

// Record begins to count statements and batches. The function that it returns ends that, and returns the numbers, from
// 1, of those before which a server can die that leave something of their own behind: the first one, and each that is
// the first after a commit. A server that dies at another one leaves behind what it leaves at the one before. Of one
// that comes over and over, the first deathsAtOne are named.
func (k *Killer) Record() (deaths func() []int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.recording, k.seen, k.committed, k.deaths, k.at = true, 0, true, nil, map[string]int{}
	return func() []int64 {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.recording = false
		return k.deaths
	}
}

// note counts a statement, or a batch of several.
func (k *Killer) note(c *pgx.Conn, statements ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.recording {
		return
	}
	outside := c.PgConn().TxStatus() == 'I'
	if k.seen++; outside && k.committed {
		text := strings.Join(statements, ";")
		if k.at[text]++; k.at[text] <= deathsAtOne {
			k.deaths = append(k.deaths, k.seen)
		}
		k.committed = false
	}
	for _, s := range statements {
		if outside && len(statements) == 1 && !reads(s) || strings.EqualFold(s, "commit") {
			k.committed = true
		}
	}
}

// reads reports whether a statement begins with SELECT, after the comments that sqlc puts before it.
func reads(statement string) bool {
	for line := range strings.Lines(statement) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			return strings.HasPrefix(strings.ToUpper(line), "SELECT")
		}
	}
	return false
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
func (k *Killer) TraceQueryStart(ctx context.Context, c *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	k.Statements.Add(1)
	k.note(c, q.SQL)
	return k.strike(ctx)
}

// TraceQueryEnd does nothing.
func (k *Killer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart counts a batch as one.
func (k *Killer) TraceBatchStart(ctx context.Context, c *pgx.Conn, b pgx.TraceBatchStartData) context.Context {
	var statements []string
	for _, q := range b.Batch.QueuedQueries {
		statements = append(statements, q.SQL)
	}
	k.Statements.Add(int64(len(statements)))
	k.note(c, statements...)
	return k.strike(ctx)
}

// TraceBatchQuery does nothing.
func (k *Killer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd does nothing.
func (k *Killer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
