package seal

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

type sealedRow struct {
	id     int
	sealed []byte
}

// All stale rows of several pages are sealed again; one that neither secret opens stops none of the others, and one
// that changed meanwhile is left as it is.
func TestResealAll(t *testing.T) {
	t.Parallel()
	first, second := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	old, err := NewBox(second)
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewRotatingBox(first, second)
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]sealedRow, 2*resealRows+10)
	for i := range rows {
		rows[i] = sealedRow{i + 1, old.Seal([]byte("text"), "row")}
	}
	const broken, fresh, changed = 3, 700, 1005
	rows[broken].sealed = []byte("neither secret opens this")
	rows[fresh].sealed = b.Seal([]byte("text"), "row")
	read := func(_ context.Context, after int, limit int32) ([]sealedRow, error) {
		return rows[min(after, len(rows)):min(after+int(limit), len(rows))], nil
	}
	write := func(_ context.Context, fresh []byte, key int, _ []byte) (int64, error) {
		if key == changed+1 {
			return 0, nil
		}
		rows[key-1].sealed = fresh
		return 1, nil
	}
	of := func(r sealedRow) (int, []byte, string) { return r.id, r.sealed, "row" }
	n, err := ResealAll(t.Context(), b, 0, read, of, write)
	if n != len(rows)-3 || err == nil || !strings.Contains(err.Error(), "opens: 1") {
		t.Errorf("%d of %d rows, %v", n, len(rows), err)
	}
	for i, r := range rows {
		if _, stale, err := b.Reseal(r.sealed, "row"); stale != (i == changed) || (err != nil) != (i == broken) {
			t.Fatalf("row %d: stale %v, %v", i, stale, err)
		}
	}
}
