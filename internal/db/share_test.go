package db_test

import (
	"context"
	"errors"
	"testing"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// Callers that wait for connections of one use do not keep those of the others, in transactions and single statements.
func TestFor_AnOverloadOfOneUseLeavesTheOthers(t *testing.T) {
	t.Parallel()
	d, err := db.Open(t.Context(), db.Config{URL: dbtest.NewURL(t), MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	done := errors.New("done")
	for _, c := range []struct {
		use   db.Use
		conns int
	}{{db.Reports, 2}, {db.Jobs, 1}, {db.Connections, 1}} {
		ctx, cancel := context.WithCancel(db.For(t.Context(), c.use))
		began, end, ended := make(chan struct{}), make(chan struct{}), make(chan error)
		for range 8 {
			go func() {
				ended <- d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
					if _, err := tx.Now(ctx); err != nil {
						return err
					}
					began <- struct{}{}
					<-end
					return done
				})
			}()
		}
		for range c.conns {
			<-began
		}
		if n := int(d.Pool.Stat().AcquiredConns()); n != c.conns {
			t.Errorf("use %d has %d connections, want %d", c.use, n, c.conns)
		}
		if _, err := d.Q.Listeners(t.Context()); err != nil {
			t.Errorf("people get no connection: %v", err)
		}
		cancel()
		if _, err := d.Q.Listeners(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("one more of use %d: %v", c.use, err)
		}
		close(end)
		for range 8 {
			<-ended
		}
	}
	// What runs alone gets the connections that it needs besides the one that holds its lock.
	ran := make(chan error)
	for lock := range int64(6) {
		go func() {
			ran <- d.Alone(db.For(t.Context(), db.Jobs), lock, func(ctx context.Context) error {
				return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
					if n := d.Pool.Stat().AcquiredConns(); n != 2 {
						t.Errorf("%d connections for one lock and its transaction", n)
					}
					_, err := tx.Now(ctx)
					return err
				})
			})
		}()
	}
	for range 6 {
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}
	ctx := db.For(t.Context(), db.Jobs)
	for range 10 { // each gives its connection back
		if _, err := d.Q.Listeners(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Q.HostsUnderLease(ctx); err != nil {
			t.Fatal(err)
		}
		if err := d.InSnapshot(ctx, func(context.Context, *dbq.Queries) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
}
