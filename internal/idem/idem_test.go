package idem_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

type world struct {
	d   *db.DB
	box *seal.Box
}

func open(t *testing.T) world {
	t.Helper()
	box, err := seal.NewBox(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return world{dbtest.New(t), box}
}

func (w world) request(key, body string) idem.Request {
	return idem.Request{
		Principal: "tok:1",
		Method:    "POST",
		Path:      "/api/v1/things",
		Key:       key,
		BodyHMAC:  w.box.MAC([]byte(body)),
	}
}

type work = func(context.Context, *db.Tx) (int, any, error)

type response struct {
	status int
	body   any
}

func (w world) call(ctx context.Context, r idem.Request, f work) (idem.Answer, error) {
	r.Render = func(result any) (int, any) { return result.(response).status, result.(response).body }
	_, out, err := idem.Once(ctx, w.d, r, func(ctx context.Context, tx *db.Tx) (response, error) {
		status, body, err := f(ctx, tx)
		return response{status, body}, err
	})
	return idem.Answer{Status: out.Status, Body: out.Body, Replayed: out.Replayed}, err
}

func answer(status int, v any) work {
	return func(context.Context, *db.Tx) (int, any, error) { return status, v, nil }
}

func forbidden(t *testing.T) work {
	return func(context.Context, *db.Tx) (int, any, error) {
		t.Error("ran again")
		return 0, nil, nil
	}
}

func TestIdem_RepeatGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	w := open(t)
	first, err := w.call(t.Context(), w.request("k", "body"), answer(201, map[string]int{"n": 1}))
	if err != nil || first.Replayed || first.Status != 201 || string(first.Body) != `{"n":1}` {
		t.Fatalf("%+v %v", first, err)
	}
	again, err := w.call(t.Context(), w.request("k", "body"), forbidden(t))
	if err != nil || !again.Replayed || again.Status != 201 || !bytes.Equal(again.Body, first.Body) {
		t.Fatalf("%+v %v", again, err)
	}
}

func TestIdem_KeyScope(t *testing.T) {
	t.Parallel()
	w := open(t)
	for i, change := range []func(*idem.Request){
		func(*idem.Request) {},
		func(r *idem.Request) { r.Principal = "tok:2" },
		func(r *idem.Request) { r.Method = "PATCH" },
		func(r *idem.Request) { r.Path = "/api/v1/others" },
		func(r *idem.Request) { r.Key = "l" },
	} {
		r := w.request("k", "body")
		change(&r)
		if a, err := w.call(t.Context(), r, answer(200, i)); err != nil || a.Replayed {
			t.Errorf("change %d: %+v %v", i, a, err)
		}
	}
}

func TestIdem_OtherBodyRefused(t *testing.T) {
	t.Parallel()
	w := open(t)
	if _, err := w.call(t.Context(), w.request("k", "body"), answer(200, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.call(t.Context(), w.request("k", "other"), forbidden(t)); !fault.Is(err, fault.IdemMismatch) {
		t.Errorf("got %v", err)
	}
}

func TestIdem_FailureFreesKey(t *testing.T) {
	t.Parallel()
	w := open(t)
	poor := fault.New(fault.InsufficientFunds, "no")
	if _, err := w.call(t.Context(), w.request("k", "body"), func(context.Context, *db.Tx) (int, any, error) {
		return 0,
			nil, poor
	}); !errors.Is(err, poor) {
		t.Fatal(err)
	}
	if a, err := w.call(t.Context(), w.request("k", "other body"), answer(200, 1)); err != nil || a.Replayed {
		t.Errorf("%+v %v", a, err)
	}
}

func TestIdem_NoKey(t *testing.T) {
	t.Parallel()
	w := open(t)
	for range 2 {
		if a, err := w.call(t.Context(), w.request("", "body"), answer(200, 1)); err != nil || a.Replayed {
			t.Errorf("%+v %v", a, err)
		}
	}
}

// twins starts a call and, while it is inside its transaction, a second one with the same key. end is how the first
// call's work ends.
func twins(t *testing.T, w world, end error, second work) (idem.Answer, error) {
	t.Helper()
	inside, goOn := make(chan struct{}), make(chan struct{})
	firstDone := make(chan error, 1)
	go func() {
		_, err := w.call(t.Context(), w.request("k", "body"), func(context.Context, *db.Tx) (int, any, error) {
			close(inside)
			<-goOn
			return 201, "first", end
		})
		firstDone <- err
	}()
	<-inside
	type result struct {
		a   idem.Answer
		err error
	}
	secondDone := make(chan result, 1)
	go func() {
		a, err := w.call(t.Context(), w.request("k", "body"), second)
		secondDone <- result{a, err}
	}()
	for blocked := 0; blocked == 0; { // until PostgreSQL reports that the second request waits for the first
		err := w.d.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%idempotency_key%'`).Scan(&blocked)
		if err != nil {
			t.Fatal(err)
		}
	}
	select {
	case r := <-secondDone:
		t.Fatalf("the twin did not wait: %+v", r)
	default:
	}
	close(goOn)
	if err := <-firstDone; !errors.Is(err, end) {
		t.Fatal(err)
	}
	r := <-secondDone
	return r.a, r.err
}

func TestIdem_ConcurrentRepeatWaits(t *testing.T) {
	t.Parallel()
	a, err := twins(t, open(t), nil, forbidden(t))
	if err != nil || !a.Replayed || a.Status != 201 || string(a.Body) != `"first"` {
		t.Errorf("%+v %v", a, err)
	}
}

func TestIdem_ConcurrentRepeatRunsIfFirstFails(t *testing.T) {
	t.Parallel()
	a, err := twins(t, open(t), fault.New(fault.NoCapacity, "none"), answer(202, "second"))
	if err != nil || a.Replayed || string(a.Body) != `"second"` {
		t.Errorf("%+v %v", a, err)
	}
}

func TestIdem_SecretAnswersSealed(t *testing.T) {
	t.Parallel()
	w := open(t)
	r := w.request("k", "body")
	r.Seal = w.box
	if _, err := w.call(t.Context(), r, answer(201, "muster_pat_secret")); err != nil {
		t.Fatal(err)
	}
	var stored []byte
	if err := w.d.Pool.QueryRow(t.Context(), "SELECT response FROM idempotency_key").Scan(&stored); err != nil ||
		strings.Contains(string(stored), "secret") {
		t.Errorf("stored %q, %v", stored, err)
	}
	if a, err := w.call(t.Context(), r, forbidden(t)); err != nil || string(a.Body) != `"muster_pat_secret"` {
		t.Errorf("%+v %v", a, err)
	}
}

func TestIdem_KeysExpire(t *testing.T) {
	t.Parallel()
	w := open(t)
	if _, err := w.call(t.Context(), w.request("k", "body"), answer(200, 1)); err != nil {
		t.Fatal(err)
	}
	if n, err := idem.Sweep(t.Context(), w.d); err != nil || n != 0 {
		t.Errorf("a young key was swept: %d %v", n, err)
	}
	if _, err := w.d.Pool.Exec(t.Context(), "UPDATE idempotency_key SET expires_at = clock_timestamp() - interval '1 "+
		"second'"); err != nil {
		t.Fatal(err)
	}
	if a, err := w.call(t.Context(), w.request("k", "other"), answer(200, 2)); err != nil || a.Replayed {
		t.Errorf("an expired key still stands: %+v %v", a, err)
	}
}

// A repetition after the platform's secret has changed gets the first answer, even one that is sealed.
func TestIdem_RepeatAfterSecretChanged(t *testing.T) {
	t.Parallel()
	w := open(t)
	rotated, err := seal.NewRotatingBox(bytes.Repeat([]byte{8}, 32), bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	first := w.request("k", "body")
	first.Seal = w.box
	if _, err := w.call(t.Context(), first, answer(201, "secret")); err != nil {
		t.Fatal(err)
	}
	ask := func(body string) (idem.Answer, error) {
		r := world{w.d, rotated}.request("k", body)
		r.Seal, r.OtherHMAC = rotated, rotated.OtherMAC([]byte(body))
		return w.call(t.Context(), r, forbidden(t))
	}
	if a, err := ask("body"); err != nil || !a.Replayed || string(a.Body) != `"secret"` {
		t.Fatalf("%+v %v", a, err)
	}
	if _, err := ask("another body"); !fault.Is(err, fault.IdemMismatch) {
		t.Fatal(err)
	}
}
