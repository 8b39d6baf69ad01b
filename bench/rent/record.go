package rent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// recording is everything one rent wrote, in PostgreSQL's binary format.
type recording struct {
	rows   map[string][][]byte // table → the values of all its rows, row by row
	hosts  []byte              // uuid[], in the order of locks
	wallet []byte              // ledger account the money came from
	hold   []byte              // and the one it went to
}

// written are the tables a rent inserts into, in its order of locks, and how the rows t of each are found from the
// cluster c, whose prefixed id is c.shown.
var written = []struct{ table, join string }{
	{"idempotency_key", "JOIN idempotency_key t ON t.key = c.name"},
	{"gpu_claim", "JOIN lease l ON l.cluster_id = c.id JOIN gpu_claim t ON t.ref = l.id"},
	{"cluster", "JOIN cluster t ON t.id = c.id"},
	{"node", "JOIN node t ON t.cluster_id = c.id"},
	{"node_status", "JOIN node n ON n.cluster_id = c.id JOIN node_status t ON t.node_id = n.id"},
	{"lease", "JOIN lease t ON t.cluster_id = c.id"},
	{"lease_price", "JOIN lease l ON l.cluster_id = c.id JOIN lease_price t ON t.lease_id = l.id"},
	{"lease_meter", "JOIN lease l ON l.cluster_id = c.id JOIN lease_meter t ON t.lease_id = l.id"},
	{"ledger_account", "JOIN ledger_account t ON t.owner = c.id"},
	{"ledger_tx", "JOIN ledger_tx t ON t.ref = c.shown"},
	{"ledger_transfer", "JOIN ledger_tx x ON x.ref = c.shown JOIN ledger_transfer t ON t.tx_id = x.id"},
	{"cluster_event", "JOIN cluster_event t ON t.cluster_id = c.id"},
	{"audit_event", "JOIN audit_event t ON t.object = c.shown"},
}

// record reads what the rents of clusters whose names are like the pattern wrote, oldest first, and the columns of each
// table.
func record(ctx context.Context, d *db.DB, like string, want int) ([]*recording, map[string][]string, error) {
	c, err := d.Pool.Acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer c.Release()
	if err := index(ctx, c.Conn().PgConn(), d, like); err != nil {
		return nil, nil, err
	}
	byCluster := map[string]*recording{}
	columns := map[string][]string{}
	for _, w := range written {
		if columns[w.table], err = columnsOf(ctx, d, w.table); err != nil {
			return nil, nil, err
		}
		list := "t." + strings.Join(columns[w.table], ", t.")
		err := each(ctx, c.Conn().PgConn(), fmt.Sprintf("SELECT c.id, %s FROM rented c %s ORDER BY c.id, t.ctid", list,
			w.join), func(v [][]byte) {
			r := byCluster[string(v[0])]
			if r == nil {
				r = &recording{rows: map[string][][]byte{}}
				byCluster[string(v[0])] = r
			}
			r.rows[w.table] = append(r.rows[w.table], v[1:]...)
		})
		if err != nil {
			return nil, nil, err
		}
	}
	var out []*recording
	err = each(ctx, c.Conn().PgConn(), `SELECT c.id, array_agg(DISTINCT n.host_id), min(t.debit_account_id::text)::uuid,
		min(t.credit_account_id::text)::uuid
		FROM rented c JOIN node n ON n.cluster_id = c.id JOIN ledger_tx x ON x.ref = c.shown JOIN ledger_transfer t ON
		t.tx_id = x.id
		GROUP BY c.id ORDER BY c.id`, func(v [][]byte) {
		r := byCluster[string(v[0])]
		r.hosts, r.wallet, r.hold = v[1], v[2], v[3]
		out = append(out, r)
	})
	if err == nil && len(out) != want {
		err = fmt.Errorf("%d of %d rents are in the database", len(out), want)
	}
	return out, columns, err
}

// index makes a temporary table of the rents on one connection.
func index(ctx context.Context, c *pgconn.PgConn, d *db.DB, like string) error {
	if err := c.Exec(ctx, "CREATE TEMP TABLE rented (id uuid PRIMARY KEY, name text, shown text)").Close(); err != nil {
		return err
	}
	rows, err := d.Pool.Query(ctx, "SELECT id, name FROM cluster WHERE name LIKE $1", like)
	if err != nil {
		return err
	}
	defer rows.Close()
	var sql strings.Builder
	for rows.Next() {
		var cl id.Cluster
		var name string
		if err := rows.Scan(&cl, &name); err != nil {
			return err
		}
		fmt.Fprintf(&sql, "INSERT INTO rented VALUES ('%s', '%s', '%s');", cl.UUID(), name, cl)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return c.Exec(ctx, sql.String()+"ANALYZE rented").Close()
}

// columnsOf are the columns a writer gives values to.
func columnsOf(ctx context.Context, d *db.DB, table string) (out []string, err error) {
	err = d.Pool.QueryRow(ctx, `SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attidentity = ''`, table).Scan(&out)
	return out, err
}

// each runs a query and hands over each row in binary format.
func each(ctx context.Context, c *pgconn.PgConn, sql string, f func([][]byte)) error {
	r := c.ExecParams(ctx, sql, nil, nil, nil, []int16{1})
	for r.NextRow() {
		row := make([][]byte, len(r.Values()))
		for i, v := range r.Values() {
			row[i] = slices.Clone(v)
		}
		f(row)
	}
	_, err := r.Close()
	return err
}
