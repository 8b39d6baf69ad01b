package migrations

import (
	"regexp"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"
)

// guarded is the first migration that is checked: those before are everywhere already.
const guarded = 119

// small are tables that stay so small that an index is built on them, or a constraint checked, in a moment. A table
// that a migration makes itself need not be here. Add yours if it has a row per org, host, card, report or setting at
// most; not if it has rows per cluster, lease, segment, entry, event or request.
var small = map[string]bool{
	"agent_release":    true,
	"api_token":        true,
	"app_user":         true,
	"budget":           true,
	"dispute":          true,
	"fabric":           true,
	"gpu":              true,
	"host":             true,
	"host_key":         true,
	"host_status":      true,
	"membership":       true,
	"offer":            true,
	"org":              true,
	"org_legal":        true,
	"payment_card":     true,
	"payout":           true,
	"payout_account":   true,
	"payout_review":    true,
	"postpaid_account": true,
	"promo_code":       true,
	"refund":           true,
	"topup":            true,
}

var (
	comment  = regexp.MustCompile(`(?m)--.*$`)
	body     = regexp.MustCompile(`(?s)\$\$.*?\$\$`) // of functions
	makes    = regexp.MustCompile(`(?i)^CREATE\s+(?:UNLOGGED\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?(\w+)`)
	index    = regexp.MustCompile(`(?i)^CREATE\s+(?:UNIQUE\s+)?INDEX\s+(CONCURRENTLY\s+)?(?:IF\s+NOT\s+EXISTS\s+)?(\w+)\s+ON\s+(?:ONLY\s+)?(\w+)`)
	drop     = regexp.MustCompile(`(?i)^DROP\s+INDEX\s+CONCURRENTLY\s+IF\s+EXISTS\s+(\w+)`)
	alter    = regexp.MustCompile(`(?is)^ALTER\s+TABLE\s+(?:IF\s+EXISTS\s+)?(?:ONLY\s+)?(\w+)\s+(.*)$`)
	checked  = regexp.MustCompile(`(?is)\bADD\s+(?:CONSTRAINT\s+\w+\s+)?(?:CHECK|FOREIGN\s+KEY)\b`)
	inColumn = regexp.MustCompile(`(?is)\bADD\s+COLUMN\b[^,]*\b(?:CHECK|REFERENCES)\b`)
	notValid = regexp.MustCompile(`(?is)\bNOT\s+VALID\b`)
	rewrites = regexp.MustCompile(`(?is)\bALTER\s+(?:COLUMN\s+)?\w+\s+(?:SET\s+DATA\s+)?TYPE\b|\bALTER\s+(?:COLUMN\s+)?\w+\s+SET\s+NOT\s+NULL\b|\bADD\s+(?:CONSTRAINT\s+\w+\s+)?(?:UNIQUE|PRIMARY\s+KEY)\s*\(`)
)

// problems says what of a migration stops writers of a table that may be big, and what to write instead.
func problems(text string) (out []string) {
	alone := strings.Contains(text, "-- +goose NO TRANSACTION")
	text = body.ReplaceAllString(comment.ReplaceAllString(text, ""), "")
	ours, dropped := map[string]bool{}, map[string]bool{}
	quick := func(table string) bool { return small[strings.ToLower(table)] || ours[strings.ToLower(table)] }
	for _, sql := range strings.Split(text, ";") {
		sql = strings.TrimSpace(sql)
		if m := makes.FindStringSubmatch(sql); m != nil {
			ours[strings.ToLower(m[1])] = true
		}
		if m := drop.FindStringSubmatch(sql); m != nil {
			dropped[m[1]] = true
		}
		if m := index.FindStringSubmatch(sql); m != nil {
			switch {
			case m[1] == "" && !quick(m[3]):
				out = append(out, "CREATE INDEX "+m[2]+" stops all writes to "+m[3]+
					" while it is built. In a file that begins with "+
					"'-- +goose NO TRANSACTION' write: SET lock_timeout = 0; DROP INDEX CONCURRENTLY IF EXISTS "+m[2]+
					"; CREATE INDEX CONCURRENTLY "+
					m[2]+" …; RESET lock_timeout; (00141 is an example). If "+m[3]+
					" always stays small, add it to the list in this test.")
			case m[1] != "" && !alone:
				out = append(out, "CREATE INDEX CONCURRENTLY "+m[2]+" cannot run in a transaction: begin the file with '-- "+
					"+goose NO TRANSACTION'.")
			case m[1] != "" && !dropped[m[2]]:
				out = append(out, "CREATE INDEX CONCURRENTLY "+m[2]+" that is cut off leaves an index that is not used: write "+
					"DROP INDEX CONCURRENTLY "+
					"IF EXISTS "+m[2]+" before it, so that it can be tried again.")
			}
		}
		m := alter.FindStringSubmatch(sql)
		if m == nil || quick(m[1]) {
			continue
		}
		if (checked.MatchString(m[2]) || inColumn.MatchString(m[2])) && !notValid.MatchString(m[2]) {
			out = append(out, "A constraint on "+m[1]+" is checked row by row with the table locked: add it NOT VALID, and "+
				"VALIDATE CONSTRAINT "+
				"in a later file. If "+m[1]+" always stays small, add it to the list in this test.")
		}
		if rewrites.MatchString(m[2]) {
			out = append(out, "This reads or rewrites "+m[1]+" with the table locked: add a new column, fill it in steps, "+
				"and add a NOT NULL check "+
				"NOT VALID; a unique index is made CONCURRENTLY and attached with ADD CONSTRAINT … USING INDEX.")
		}
	}
	return out
}

// No migration stops the writers of a big table.
func TestMigrationsDoNotStopWriters(t *testing.T) {
	t.Parallel()
	files, err := FS.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		n, err := goose.NumericComponent(f.Name())
		if err != nil || n < guarded {
			continue
		}
		text, err := FS.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems(string(text)) {
			t.Errorf("%s: %s", f.Name(), p)
		}
	}
}

func TestWhatStopsWritersIsSeen(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"CREATE INDEX a ON ledger_tx (id);": 1,
		"CREATE UNIQUE INDEX a ON ledger_tx " +
			"(id);": 1,
		"CREATE INDEX a ON budget (id);": 0,
		"CREATE TABLE new_one (a integer); CREATE INDEX b ON " +
			"new_one (a);": 0,
		"CREATE INDEX CONCURRENTLY a ON ledger_tx " +
			"(id);": 1,
		"-- +goose NO TRANSACTION\nCREATE INDEX CONCURRENTLY a ON ledger_tx " +
			"(id);": 1,
		"-- +goose NO TRANSACTION\nDROP INDEX CONCURRENTLY IF EXISTS a; CREATE INDEX CONCURRENTLY a ON ledger_tx " +
			"(id);": 0,
		"ALTER TABLE lease ADD CONSTRAINT c CHECK (rank " +
			">= 0);": 1,
		"ALTER TABLE lease ADD CONSTRAINT c CHECK (rank >= 0) NOT " +
			"VALID;": 0,
		"ALTER TABLE lease ADD FOREIGN KEY (cluster_id) REFERENCES " +
			"cluster;": 1,
		"ALTER TABLE lease ADD COLUMN a integer NOT NULL " +
			"DEFAULT 0;": 0,
		"ALTER TABLE lease ADD COLUMN a integer CHECK (a " +
			"> 0);": 1,
		"ALTER TABLE lease ALTER COLUMN rank TYPE bigint;":  1,
		"ALTER TABLE lease ALTER COLUMN rank SET NOT NULL;": 1,
		"ALTER TABLE lease VALIDATE CONSTRAINT c;":          0,
		"-- CREATE INDEX a ON lease (id);\nCREATE FUNCTION f() RETURNS void LANGUAGE sql AS $$ CREATE INDEX a ON lease " +
			"(id); $$": 0,
	} {
		if got := problems(text); len(got) != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
