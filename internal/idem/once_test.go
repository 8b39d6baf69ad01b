package idem_test

import (
	"context"
	"testing"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/idem"
)

type thing struct{ N int }

type thingView struct {
	Number int `json:"number"`
}

// makes returns work that makes a thing, for tests that run it.
func makes(n int) func(context.Context, *db.Tx) (thing, error) {
	return func(context.Context, *db.Tx) (thing, error) { return thing{n}, nil }
}

func neverAgain(t *testing.T) func(context.Context, *db.Tx) (thing, error) {
	return func(context.Context, *db.Tx) (thing, error) {
		t.Error("ran again")
		return thing{}, nil
	}
}

func TestOnce_RepeatGetsResult(t *testing.T) {
	t.Parallel()
	w := open(t)
	first, out, err := idem.Once(t.Context(), w.d, w.request("k", "body"), makes(7))
	if err != nil || first != (thing{7}) || out.Replayed {
		t.Fatalf("%+v %+v %v", first, out, err)
	}
	again, out, err := idem.Once(t.Context(), w.d, w.request("k", "body"), neverAgain(t))
	if err != nil || again != (thing{7}) || !out.Replayed {
		t.Fatalf("%+v %+v %v", again, out, err)
	}
}

func TestOnce_RenderedAnswerStored(t *testing.T) {
	t.Parallel()
	w := open(t)
	r := w.request("k", "body")
	r.Render = func(result any) (int, any) { return 201, result.(thingView) }
	r = idem.As(r, func(v thing) thingView { return thingView{v.N} })
	_, first, err := idem.Once(t.Context(), w.d, r, makes(7))
	if err != nil || first.Replayed || first.Status != 201 || string(first.Body) != `{"number":7}` {
		t.Fatalf("%d %s %v", first.Status, first.Body, err)
	}
	_, again, err := idem.Once(t.Context(), w.d, r, neverAgain(t))
	if err != nil || !again.Replayed || again.Status != 201 || string(again.Body) != string(first.Body) {
		t.Fatalf("%d %s %v", again.Status, again.Body, err)
	}
}

func TestOnce_RepeatByReference(t *testing.T) {
	t.Parallel()
	w := open(t)
	r := w.request("k", "body")
	r.Render = func(any) (int, any) { t.Error("rendered what is only a reference"); return 500, nil }
	for i := range 2 {
		got, out, err := idem.Once(t.Context(), w.d, r.ByReference(), makes(i+1))
		if err != nil || got != (thing{1}) || out.Replayed != (i == 1) || out.Again().Body != nil {
			t.Errorf("call %d: %+v %+v %v", i, got, out, err)
		}
	}
}

func TestOnce_FailureFreesKey(t *testing.T) {
	t.Parallel()
	w := open(t)
	_, _, err := idem.Once(t.Context(), w.d, w.request("k", "body"), func(context.Context, *db.Tx) (thing, error) {
		return thing{1}, fault.New(fault.NoCapacity, "none")
	})
	if !fault.Is(err, fault.NoCapacity) {
		t.Fatal(err)
	}
	if got, out, err := idem.Once(t.Context(), w.d, w.request("k", "body"), makes(2)); err != nil || out.Replayed ||
		got.N != 2 {
		t.Errorf("%+v %+v %v", got, out, err)
	}
}

func TestOnceInSteps_RunsOnceOutsideTransaction(t *testing.T) {
	t.Parallel()
	w := open(t)
	runs := 0
	for range 2 {
		got, out, err := idem.OnceInSteps(t.Context(), w.d, w.request("k", "body"), func(context.Context) (thing, error) {
			runs++
			return thing{runs}, nil
		})
		if err != nil || got.N != 1 {
			t.Errorf("%+v %+v %v", got, out, err)
		}
	}
	if runs != 1 {
		t.Errorf("ran %d times", runs)
	}
}

// What comes before the transaction runs once, and not at all for a repeated call; a failure frees the key.
func TestOnceAfter_AsksOnce(t *testing.T) {
	t.Parallel()
	w := open(t)
	asked := 0
	refuse := func(context.Context) error { asked++; return fault.New(fault.Invalid, "no") }
	_, _, err := idem.OnceAfter(t.Context(), w.d, w.request("k", "body"), refuse, makes(1))
	if !fault.Is(err, fault.Invalid) {
		t.Fatal(err)
	}
	for i := range 2 {
		got, out, err := idem.OnceAfter(t.Context(), w.d, w.request("k", "body"),
			func(context.Context) error { asked++; return nil }, makes(2))
		if err != nil || got.N != 2 || out.Replayed != (i == 1) {
			t.Errorf("%d: %+v %+v %v", i, got, out, err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}
