package rent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// step is one statement of the baseline with its parameters, in binary format.
type step struct {
	sql  string
	args [][]byte
}

// steps is a recorded rent as bare statements: the same rows, and the locks a rent holds, in the same order. One
// statement per table; nothing is checked, planned, or read back.
func steps(r *recording, columns map[string][]string) []step {
	key := r.rows["idempotency_key"]
	keyCol := func(name string) []byte { return key[slices.Index(columns["idempotency_key"], name)] }
	accounts := [][]byte{uuidArray(r.wallet, r.hold)}
	out := []step{
		{"BEGIN", nil},
		{"INSERT INTO idempotency_key (principal, method, path, key, body_hmac, expires_at) VALUES ($1, $2, $3, $4, $5, $6)",
			[][]byte{keyCol("principal"), keyCol("method"), keyCol("path"), keyCol("key"), keyCol("body_hmac"),
				keyCol("expires_at")}},
		{"SELECT id FROM host WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE", [][]byte{r.hosts}},
	}
	insert := func(tables ...string) {
		for _, t := range tables {
			out = append(out, insertion(t, columns[t], r.rows[t]))
		}
	}
	insert("gpu_claim")
	out = append(out, step{"UPDATE host SET revision = revision + 1 WHERE id = ANY($1::uuid[])", [][]byte{r.hosts}})
	insert("cluster", "node", "node_status", "lease", "lease_price", "lease_meter", "ledger_account")
	// The balance of the hold is empty until the transfer moves it.
	out = append(out, step{"INSERT INTO ledger_balance (account_id, amount, floor) VALUES ($1, 0, 0)", [][]byte{r.hold}})
	out = append(out, step{"SELECT account_id FROM ledger_balance WHERE account_id = ANY($1::uuid[]) ORDER BY " +
		"account_id FOR UPDATE", accounts})
	insert("ledger_tx", "ledger_transfer")
	insert("cluster_event", "audit_event")
	return append(out,
		step{"UPDATE idempotency_key SET status = $5, response = $6 WHERE principal = $1 AND method = $2 AND path = $3 " +
			"AND key = $4",
			[][]byte{keyCol("principal"), keyCol("method"), keyCol("path"), keyCol("key"), keyCol("status"),
				keyCol("response")}},
		step{"COMMIT", nil})
}

func insertion(table string, columns []string, values [][]byte) step {
	var b strings.Builder
	fmt.Fprintf(&b, "INSERT INTO %s (%s) VALUES ", table, strings.Join(columns, ", "))
	for i := range values {
		switch {
		case i == 0:
			b.WriteString("(")
		case i%len(columns) == 0:
			b.WriteString("), (")
		default:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "$%d", i+1)
	}
	return step{b.String() + ")", values}
}

// uuidArray is a one-dimensional uuid[] in binary format.
func uuidArray(ids ...[]byte) []byte {
	b := []byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x0b, 0x86, 0, 0, 0, byte(len(ids)), 0, 0, 0, 1}
	for _, v := range ids {
		b = append(append(b, 0, 0, 0, 16), v...)
	}
	return b
}

// writer is one bare connection that keeps its statements prepared.
type writer struct {
	conn     *pgconn.PgConn
	prepared map[string]string
}

func connect(ctx context.Context, at string) (*writer, error) {
	c, err := pgconn.Connect(ctx, at)
	if err != nil {
		return nil, err
	}
	// As ours does: without it, statements with an array are planned at every execution.
	return &writer{c, map[string]string{}}, c.Exec(ctx, "SET plan_cache_mode = force_generic_plan").Close()
}

func (w *writer) name(ctx context.Context, sql string) (string, error) {
	if n, ok := w.prepared[sql]; ok {
		return n, nil
	}
	n := fmt.Sprintf("s%d", len(w.prepared))
	if _, err := w.conn.Prepare(ctx, n, sql, nil); err != nil {
		return "", fmt.Errorf("%s: %w", sql, err)
	}
	w.prepared[sql] = n
	return n, nil
}

var binary = []int16{1}

// one sends the statements one after the other, each when the one before is done.
func (w *writer) one(ctx context.Context, all []step) error {
	for _, s := range all {
		n, err := w.name(ctx, s.sql)
		if err != nil {
			return err
		}
		if r := w.conn.ExecPrepared(ctx, n, s.args, binary, binary).Read(); r.Err != nil {
			return fmt.Errorf("%s: %w", s.sql, r.Err)
		}
	}
	return nil
}

// pipelined sends them all at once. No program that decides anything can do that; it is the floor.
func (w *writer) pipelined(ctx context.Context, all []step) error {
	names := make([]string, len(all))
	for i, s := range all {
		var err error
		if names[i], err = w.name(ctx, s.sql); err != nil {
			return err
		}
	}
	p := w.conn.StartPipeline(ctx)
	for i, s := range all {
		p.SendQueryPrepared(names[i], s.args, binary, binary)
	}
	if err := p.Sync(); err != nil {
		return err
	}
	for {
		r, err := p.GetResults()
		if err != nil {
			return err
		}
		if _, synced := r.(*pgconn.PipelineSync); synced || r == nil {
			return p.Close()
		}
		if rr, ok := r.(*pgconn.ResultReader); ok {
			if res := rr.Read(); res.Err != nil {
				return res.Err
			}
		}
	}
}
