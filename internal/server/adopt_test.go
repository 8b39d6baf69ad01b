package server

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/restore"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// A server does not start on a restored database until an operator has adopted it.
func TestAServerRefusesARestoredDatabase(t *testing.T) {
	t.Parallel()
	original := dbtest.NewURL(t)
	start := func(url string) error {
		a := &Server{cfg: Config{DatabaseURL: SecretText(url), DBConns: 2}, log: slog.New(slog.DiscardHandler)}
		return errors.Join(a.openDatabase(t.Context()), a.Close(t.Context()))
	}
	if err := start(original); err != nil {
		t.Fatal(err)
	}
	restored := dbtest.Copy(t, original)
	if err := start(restored); !errors.Is(err, restore.ErrRestored) ||
		!strings.Contains(err.Error(), "muster server adopt-restore") {
		t.Fatal(err)
	}
	for _, again := range []bool{false, true} {
		r, err := AdoptRestore(t.Context(), Config{DatabaseURL: SecretText(restored)}, restore.Options{}, io.Discard)
		if err != nil || r.Epoch < 2 || r.Nothing != again {
			t.Fatalf("adopted again %t: %v %+v", again, err, r)
		}
	}
	if err := start(restored); err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(t.Context(), db.Config{URL: restored, MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var epoch int64
	var paused bool
	if err := d.Pool.QueryRow(t.Context(), "SELECT epoch, EXISTS (SELECT FROM sending_pause) FROM control").Scan(&epoch,
		&paused); err != nil || epoch < 2 || !paused {
		t.Fatal(epoch, paused, err)
	}
}
