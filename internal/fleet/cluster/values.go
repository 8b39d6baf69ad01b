package cluster

import (
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// Small conversions between what the database holds and what the rules speak of.

func deref(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func intp(v *int32) *int {
	if v == nil {
		return nil
	}
	n := int(*v)
	return &n
}

func uuids[K id.Kind](ids ...id.ID[K]) []pgtype.UUID {
	out := make([]pgtype.UUID, len(ids))
	for i, v := range ids {
		out[i] = pgtype.UUID{Bytes: v.UUID(), Valid: !v.IsZero()}
	}
	return out
}

// list adds a piece to a list of them.
func list(a, b string) string {
	if a == "" {
		return b
	}
	return a + ", " + b
}

// join puts two pieces of a sentence together.
func join(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	}
	return a + " (" + b + ")"
}

func lowerFirst(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToLower(r)) + s[n:]
}

// clip bounds what a host says to n bytes of clean text.
func clip(s string, n int) string { return text.OneLine(text.Clip(s, n)) }
