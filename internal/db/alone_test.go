package db_test

import (
	"context"
	"testing"

	"github.com/musterhq/muster/internal/testing/dbtest"
)

func TestAlone(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	inner, other := false, false
	err := d.Alone(t.Context(), 1, func(ctx context.Context) error {
		if err := d.Alone(ctx, 2, func(context.Context) error { other = true; return nil }); err != nil {
			return err
		}
		return d.Alone(ctx, 1, func(context.Context) error { inner = true; return nil })
	})
	if err != nil || inner {
		t.Errorf("two at once: %v, %v", inner, err)
	}
	if !other {
		t.Error("another lock was not free")
	}
	again := false
	if err := d.Alone(t.Context(), 1, func(context.Context) error { again = true; return nil }); err != nil || !again {
		t.Errorf("not free afterwards: %v, %v", again, err)
	}
}
