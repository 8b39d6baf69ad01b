package main

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/dbtest"
	"github.com/musterhq/muster/internal/restore"
)

// A server does not start on a restored database until an operator has adopted it.
func TestAServerRefusesARestoredDatabase(t *testing.T) {
	t.Parallel()
	original := dbtest.NewURL(t)
	start := func(url string) error {
		a := &app{cfg: serverConfig{DatabaseURL: secretText(url), DBConns: 2}, log: slog.New(slog.DiscardHandler)}
		return errors.Join(a.openDatabase(t.Context()), a.Close(t.Context()))
	}
	if err := start(original); err != nil {
		t.Fatal(err)
	}
	restored := dbtest.Copy(t, original)
	if err := start(restored); !errors.Is(err, restore.ErrRestored) || !strings.Contains(err.Error(), "muster server adopt-restore") {
		t.Fatal(err)
	}
	for i, want := range []string{"Sending of money is paused", "Nothing was to be adopted. The last adoption:"} {
		var out strings.Builder
		err := adoptRestore(t.Context(), serverConfig{DatabaseURL: secretText(restored)}, restore.Options{}, &out, slog.New(slog.DiscardHandler))
		if err != nil || !strings.Contains(out.String(), want) {
			t.Fatalf("%d: %v %s", i, err, out.String())
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
	if err := d.Pool.QueryRow(t.Context(), "SELECT epoch, EXISTS (SELECT FROM sending_pause) FROM control").Scan(&epoch, &paused); err != nil || epoch < 2 || !paused {
		t.Fatal(epoch, paused, err)
	}
}
