package archtest

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A query with a LIMIT that reads across all owners is either a page for people or a scan of a background job. A scan
// that looks at the same rows again and again never reaches the others once as many rows as its LIMIT cannot be
// processed. So each such query declares in a comment how it makes progress:
//
//	-- scan: moves COLUMN           it orders by COLUMN, and writes it in the rows it takes, locked SKIP LOCKED
//	-- scan: moves COLUMN by QUERY  the same, but another query writes COLUMN
//	-- scan: moves COLUMN alone     the same, and one replica at a time runs it, so that nothing need be locked
//	-- scan: done                   the statement itself does all there is to do with the rows
//	-- scan: in order               rows are processed one after the other; a job that cannot process one stops there
//	-- scan: lookup                 it reads the newest rows, or one for each of others, on purpose
//	-- scan: page                   people read it
//
// Queries of one owner's rows (org_id = @org_id) and those that read on from a cursor (id < @before) need no comment.
var scanComment = regexp.MustCompile(`(?m)^-- scan: (moves ([a-z_]+)(?: by ([A-Za-z]+))?( alone)?|done|in order|lookup|page)$`)

var (
	queryHead = regexp.MustCompile(`(?m)^-- name: ([A-Za-z]+) :[a-z]+$`)
	limited   = regexp.MustCompile(`(?i)\bLIMIT\s+(\S+)`)
	// ofOne is a condition that keeps a query to the rows of one object.
	ofOne = regexp.MustCompile(`(?i)\b(?:\w+\.)?\w*(?:_id|^id|owner|fingerprint)\s*=\s*(?:[@$][a-z0-9_]+|sqlc\.arg\(\w+\))`)
	// onward is a condition that reads on from where the last page ended.
	onward = regexp.MustCompile(`(?i)\b(?:\w+\.)?\w+\s*[<>]\s*(?:[@$](?:before|after|seen|cursor)\w*|sqlc\.narg\((?:before|after)\w*\))`)
)

type query struct{ file, name, text, code string }

func queriesIn(file, sql string) (out []query) {
	at := queryHead.FindAllStringSubmatchIndex(sql, -1)
	for i, m := range at {
		end := len(sql)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		text := sql[m[0]:end]
		out = append(out, query{file, sql[m[2]:m[3]], text, comments.ReplaceAllString(text, "")})
	}
	return out
}

// badScan is what is wrong with a query; "": nothing. all are the queries by name.
func badScan(q query, all map[string]query) string {
	if !limited.MatchString(q.code) {
		return ""
	}
	m := scanComment.FindStringSubmatch(q.text)
	if m == nil {
		if ofOne.MatchString(q.code) || onward.MatchString(q.code) {
			return ""
		}
		return "has a LIMIT and does not say how it gets past rows that cannot be processed: see scanComment"
	}
	kind, column, writer := m[1], m[2], q
	switch {
	case kind == "page", kind == "lookup", kind == "in order":
		return ""
	case kind == "done":
		if !writes.MatchString(q.code) {
			return "is a scan that is done, and writes nothing"
		}
		return ""
	case m[3] != "":
		var known bool
		if writer, known = all[m[3]]; !known {
			return "names " + m[3] + ", which is no query"
		}
	}
	if !regexp.MustCompile(`(?is)\bSET\b.*\b` + column + `\s*=`).MatchString(writer.code) {
		return "is moved by " + column + ", which " + writer.name + " does not write"
	}
	if !regexp.MustCompile(`(?i)ORDER BY\s+(?:\w+\.)?` + column + `\b`).MatchString(q.code) {
		return "is moved by " + column + ", and not ordered by it"
	}
	if m[4] == "" && !strings.Contains(q.code, "SKIP LOCKED") {
		return "does not skip the rows that other replicas are taking"
	}
	return ""
}

// TestEveryScanGetsOn finds queries with a LIMIT that a background job could be stuck at.
func TestEveryScanGetsOn(t *testing.T) {
	t.Parallel()
	all, names := map[string]query{}, []string{}
	for _, f := range glob(t, "../../../internal/db/queries/*.sql") {
		for _, q := range queriesIn(filepath.Base(f), read(t, f)) {
			all[q.name], names = q, append(names, q.name)
		}
	}
	slices.Sort(names)
	scans := 0
	for _, n := range names {
		q := all[n]
		if scanComment.MatchString(q.text) {
			scans++
		}
		if why := badScan(q, all); why != "" {
			t.Errorf("%s: %s %s", q.file, q.name, why)
		}
	}
	if scans < 20 {
		t.Fatalf("only %d scans seen: the patterns are broken", scans)
	}
}

func TestScansThatGetStuckAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql string
		bad bool
	}{
		"undeclared":     {"-- name: A :many\nSELECT id FROM t WHERE state = 'due' ORDER BY id LIMIT $1;\n", true},
		"undeclared one": {"-- name: A :one\nSELECT id FROM t WHERE state = 'due' ORDER BY id LIMIT 1;\n", true},
		"of one owner":   {"-- name: A :many\nSELECT id FROM t WHERE org_id = @org_id ORDER BY id LIMIT $1;\n", false},
		"a cursor":       {"-- name: A :many\nSELECT id FROM t WHERE id < @before::uuid ORDER BY id LIMIT $1;\n", false},
		"a page":         {"-- name: A :many\n-- scan: page\nSELECT id FROM t ORDER BY id LIMIT $1;\n", false},
		"moves nothing": {"-- name: A :many\n-- scan: moves next_at\nSELECT id FROM t ORDER BY next_at LIMIT $1 FOR " +
			"UPDATE SKIP LOCKED;\n", true},
		"wrong order": {"-- name: A :many\n-- scan: moves next_at\nUPDATE t SET next_at = now() WHERE id IN (SELECT " +
			"id FROM t ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED);\n", true},
		"waits": {"-- name: A :many\n-- scan: moves next_at\nUPDATE t SET next_at = now() WHERE id IN (SELECT " +
			"id FROM t ORDER BY next_at LIMIT $1);\n", true},
		"moves": {"-- name: A :many\n-- scan: moves next_at\nUPDATE t SET next_at = now() WHERE id IN (SELECT " +
			"id FROM t ORDER BY next_at LIMIT $1 FOR UPDATE SKIP LOCKED);\n", false},
		"by another": {"-- name: A :many\n-- scan: moves next_at by B\nSELECT id FROM t ORDER BY next_at LIMIT $1 " +
			"FOR UPDATE SKIP LOCKED;\n\n-- name: B :exec\nUPDATE t SET next_at = now();\n", false},
		"by none": {"-- name: A :many\n-- scan: moves next_at by B\nSELECT id FROM t ORDER BY next_at LIMIT $1 " +
			"FOR UPDATE SKIP LOCKED;\n", true},
		"done by reading": {"-- name: A :many\n-- scan: done\nSELECT id FROM t ORDER BY id LIMIT $1;\n", true},
		"done": {"-- name: A :execrows\n-- scan: done\nDELETE FROM t WHERE id IN (SELECT id FROM t ORDER BY id " +
			"LIMIT $1);\n", false},
	} {
		all := map[string]query{}
		for _, q := range queriesIn(name, c.sql) {
			all[q.name] = q
		}
		if why := badScan(all["A"], all); (why != "") != c.bad {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// volatileBound is a comparison that no index can answer: clock_timestamp() may differ from row to row, so PostgreSQL
// asks it of each row that the other conditions leave.
var volatileBound = regexp.MustCompile(`[<>]=?\s*clock_timestamp\(\)`)

// TestScansAreBoundedByAnIndex holds that scans and deletions compare times with statement_timestamp(), which is the
// same for all rows: a rent read 300,000 past clusters to find those of the last hour.
func TestScansAreBoundedByAnIndex(t *testing.T) {
	t.Parallel()
	for _, f := range glob(t, "../../../internal/db/queries/*.sql") {
		for _, q := range queriesIn(filepath.Base(f), read(t, f)) {
			if (limited.MatchString(q.code) || strings.Contains(q.code, "DELETE FROM")) && volatileBound.MatchString(q.code) {
				t.Errorf("%s: %s compares with clock_timestamp(): no index can be used; write statement_timestamp()", q.file,
					q.name)
			}
		}
	}
}
