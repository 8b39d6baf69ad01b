// Package idem makes a repeated request take effect once.
//
// A key belongs to a principal, a method and a path, and lives for 24 hours. It is written in the transaction of the
// use case it guards, so these always hold:
//
//   - the effect and the remembered answer commit together, or neither does: a failure frees the key;
//   - a concurrent twin waits for the first call's transaction, then gets its answer, or runs if it failed;
//   - the same key with another body is fault.IdemMismatch;
//   - bodies are kept only as a keyed hash, and answers that carry a secret only sealed.
package idem

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/seal"
)

// Life is how long an answer is remembered.
const Life = 24 * time.Hour

// MaxKey is the greatest length of a key in bytes.
const MaxKey = 255

// Request identifies a call. With an empty Key nothing is remembered and every call runs.
type Request struct {
	Principal string // account.Principal.Key, or "anon:<address>"
	Method    string
	Path      string
	Key       string    // the Idempotency-Key header
	BodyHMAC  []byte    // seal.Box.MAC of the body
	OtherHMAC []byte    // seal.Box.OtherMAC of it: a call before the platform's secret changed had this one; nil: none
	Seal      *seal.Box // set when the answer carries a secret: it is stored encrypted

	// Render turns the result of Once into what is remembered and answered: a 2xx status and what is marshalled to the
	// body. The API's route table sets it. nil: 200 and the result itself, which a repeated call gets decoded.
	Render func(result any) (status int, body any)
}

// Outcome is what a use case returns to its caller in addition to the result. The zero value is a first call whose
// result the caller renders itself.
type Outcome struct {
	Replayed bool   // an earlier call did the work
	Status   int    // of the answer in Body; 0 without one
	Body     []byte // the JSON answered to the first call and to each repeated one; nil: the caller renders the result
}

// As returns r, for which results of type T are rendered by view: what the use case returns is a domain object, and
// what is remembered is the answer that shows it.
func As[T, O any](r Request, view func(T) O) Request {
	render := r.Render
	if render == nil {
		return r
	}
	r.Render = func(result any) (int, any) { return render(view(result.(T))) }
	return r
}

// ByReference returns r such that Once remembers the result itself instead of the answer, and a repeated call gets it
// back: for a use case that remembers only an id in its transaction and reads the object after it, in its present
// state. It returns Outcome.Again, so that the caller renders that object.
func (r Request) ByReference() Request {
	r.Render = nil
	return r
}

// Again returns the outcome without a body: the caller renders the result.
func (o Outcome) Again() Outcome { return Outcome{Replayed: o.Replayed} }

// Once runs f in one transaction and remembers its result under r's key. Called again with that key within Life, it
// does not run f: the Outcome has the body of the first answer, and the result is the first one when r has no Render,
// else zero. With an empty key it only runs f. When f fails, the transaction is rolled back and the key is free.
// Faults: IdemMismatch (the key was used for another body), and those of f.
func Once[T any](ctx context.Context, d *db.DB, r Request, f func(context.Context, *db.Tx) (T, error)) (result T,
	out Outcome, err error) {
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		result, out, err = OnceIn(ctx, tx, r, f)
		return err
	})
	if err != nil {
		var zero T
		return zero, Outcome{}, err
	}
	return result, out, nil
}

// OnceIn is Once inside a transaction that the caller has begun and commits when the error is nil.
func OnceIn[T any](ctx context.Context, tx *db.Tx, r Request, f func(context.Context, *db.Tx) (T, error)) (result T,
	out Outcome, err error) {
	earlier, err := r.Begin(ctx, tx)
	switch {
	case err != nil:
		return result, Outcome{}, err
	case earlier != nil:
		return repeat[T](r, *earlier)
	}
	if result, err = f(ctx, tx); err != nil {
		return result, Outcome{}, err
	}
	status, body := r.render(result)
	a, err := r.Finish(ctx, tx, status, body)
	return result, Outcome{Status: a.Status, Body: a.Body}, err
}

// OnceInBatches is Once for a use case of two round trips. lock queues the locks and reads of the use case, which are
// sent together with the key; decide decides with what they read and queues the writes, which are sent together with
// the commit: it must not use tx for anything else that writes. If the key was used before, decide does not run, and
// the locks are released again.
func OnceInBatches[T any](ctx context.Context, d *db.DB, r Request, lock func(b *pgx.Batch, tx *db.Tx) error,
	decide func(ctx context.Context, b *pgx.Batch, tx *db.Tx) (T, error)) (result T, out Outcome, err error) {
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		locks, writes, first := &pgx.Batch{}, &pgx.Batch{}, r.Key == ""
		if !first {
			db.Queue(locks, func(ctx context.Context, q *dbq.Queries) error {
				keys, err := q.ClaimIdempotencyKey(ctx, r.claim())
				first = len(keys) == 1
				return err
			})
		}
		if err := lock(locks, tx); err != nil {
			return err
		}
		if err := tx.Send(ctx, locks); err != nil {
			return err
		}
		if !first {
			earlier, err := r.Earlier(ctx, tx)
			if err == nil {
				result, out, err = repeat[T](r, *earlier)
			}
			return cmp.Or(err, errRepeated)
		}
		if result, err = decide(ctx, writes, tx); err != nil {
			return err
		}
		a, row, err := r.answer(r.render(result))
		if err == nil && r.Key != "" {
			db.Write(writes, (*dbq.Queries).StoreIdempotentAnswer, row)
		}
		out, tx.Last = Outcome{Status: a.Status, Body: a.Body}, writes
		return err
	})
	if err != nil && !errors.Is(err, errRepeated) {
		var zero T
		return zero, Outcome{}, err
	}
	return result, out, nil
}

// OnceInSteps is Once for work that makes transactions of its own, each of which is safe to repeat: f runs outside any
// transaction, and its result is remembered in one of its own at the end. A process that dies before that has done some
// of the work and remembers nothing, so the caller repeats the request and f does the rest. Twins may run f at the same
// time; both get the answer of the one that ends first.
func OnceInSteps[T any](ctx context.Context, d *db.DB, r Request, f func(context.Context) (T, error)) (result T,
	out Outcome, err error) {
	if result, out, err = answered[T](ctx, d, r); !errors.Is(err, errFirst) {
		return result, out, err
	}
	if result, err = f(ctx); err != nil {
		return result, Outcome{}, err
	}
	return Once(ctx, d, r, func(context.Context, *db.Tx) (T, error) { return result, nil })
}

// OnceAfter is Once for a use case that does something slow first, such as asking another server: before runs outside
// any transaction, and does not run if an earlier call did the work. It has to be safe to repeat.
func OnceAfter[T any](ctx context.Context, d *db.DB, r Request, before func(context.Context) error,
	f func(context.Context, *db.Tx) (T, error)) (result T, out Outcome, err error) {
	if result, out, err = answered[T](ctx, d, r); !errors.Is(err, errFirst) {
		return result, out, err
	}
	if err := before(ctx); err != nil {
		return result, Outcome{}, err
	}
	return Once(ctx, d, r, f)
}

// answered is the outcome of a call whose work an earlier one did. Error: errFirst.
func answered[T any](ctx context.Context, d *db.DB, r Request) (result T, out Outcome, err error) {
	if r.Key == "" {
		return result, Outcome{}, errFirst
	}
	return Once(ctx, d, r, func(context.Context, *db.Tx) (result T, _ error) { return result, errFirst })
}

func (r Request) render(result any) (status int, body any) {
	if r.Render == nil {
		return http.StatusOK, result
	}
	return r.Render(result)
}

// repeat is the outcome of a call whose work an earlier one did.
func repeat[T any](r Request, a Answer) (result T, out Outcome, err error) {
	if r.Render == nil {
		if err := json.Unmarshal(a.Body, &result); err != nil {
			return result, Outcome{}, fmt.Errorf("result of an earlier %s %s: %w", r.Method, r.Path, err)
		}
	}
	return result, Outcome{Replayed: true, Status: a.Status, Body: a.Body}, nil
}

// Answer is what the caller receives.
type Answer struct {
	Status   int
	Body     []byte // JSON
	Replayed bool   // an earlier call did the work
}

// errRepeated rolls back the transaction in which OnceInBatches found an earlier answer.
var errRepeated = errors.New("the request was answered before")

// errFirst ends the transaction in which answered found no earlier answer.
var errFirst = errors.New("no earlier answer to the request")

// Begin takes the key in tx, first of all locks. It waits for a twin; the answer is the twin's, or nil when the caller
// has to do the work and call Finish.
func (r Request) Begin(ctx context.Context, tx *db.Tx) (*Answer, error) {
	if r.Key == "" {
		return nil, nil
	}
	keys, err := tx.Q.ClaimIdempotencyKey(ctx, r.claim())
	if err != nil {
		return nil, fmt.Errorf("take idempotency key: %w", err)
	}
	if len(keys) == 1 {
		return nil, nil
	}
	return r.Earlier(ctx, tx)
}

func (r Request) claim() dbq.ClaimIdempotencyKeyParams {
	return dbq.ClaimIdempotencyKeyParams{
		Principal: r.Principal, Method: r.Method, Path: r.Path, Key: r.Key, BodyHmac: r.BodyHMAC, Life: Life.Seconds(),
	}
}

// Earlier is what was answered to the first call under the key.
func (r Request) Earlier(ctx context.Context, tx *db.Tx) (*Answer, error) {
	row, err := tx.Q.IdempotentAnswer(ctx, dbq.IdempotentAnswerParams{
		Principal: r.Principal,
		Method:    r.Method,
		Path:      r.Path,
		Key:       r.Key,
	})
	if err != nil {
		return nil, fmt.Errorf("read idempotent answer: %w", err)
	}
	if !bytes.Equal(row.BodyHmac, r.BodyHMAC) && (r.OtherHMAC == nil || !bytes.Equal(row.BodyHmac, r.OtherHMAC)) {
		return nil, fault.New(fault.IdemMismatch, "this Idempotency-Key was used within 24 hours for a request with "+
			"another body: use a new key for a new request")
	}
	a := &Answer{Status: int(row.Status), Body: row.Response, Replayed: true}
	if row.Sealed {
		if r.Seal == nil {
			return nil, fmt.Errorf("the answer of %s %s is sealed, and there is no key to open it", r.Method, r.Path)
		}
		if a.Body, err = r.Seal.Open(row.Response, r.belongs()); err != nil {
			return nil, fmt.Errorf("open idempotent answer: %w", err)
		}
	}
	return a, nil
}

// Finish remembers the answer in tx. status is a 2xx.
func (r Request) Finish(ctx context.Context, tx *db.Tx, status int, response any) (Answer, error) {
	return r.remember(ctx, tx.Q, status, response)
}

// Amend replaces the answer that Finish remembered, after the commit: for an answer that takes longer to read than
// locks should be held. When the server dies before it, repeated requests get what Finish remembered.
func (r Request) Amend(ctx context.Context, q *dbq.Queries, status int, response any) error {
	_, err := r.remember(ctx, q, status, response)
	return err
}

func (r Request) remember(ctx context.Context, q *dbq.Queries, status int, response any) (Answer, error) {
	a, row, err := r.answer(status, response)
	if err != nil || r.Key == "" {
		return a, err
	}
	if err := q.StoreIdempotentAnswer(ctx, row); err != nil {
		return Answer{}, fmt.Errorf("store idempotent answer: %w", err)
	}
	return a, nil
}

// answer is an answer and how it is stored.
func (r Request) answer(status int, response any) (Answer, dbq.StoreIdempotentAnswerParams, error) {
	body, err := json.Marshal(response)
	if err != nil {
		return Answer{}, dbq.StoreIdempotentAnswerParams{}, fmt.Errorf("answer of %s %s: %w", r.Method, r.Path, err)
	}
	stored := body
	if r.Seal != nil && r.Key != "" {
		stored = r.Seal.Seal(body, r.belongs())
	}
	return Answer{Status: status, Body: body}, dbq.StoreIdempotentAnswerParams{
		Status: int32(status), Response: stored, Sealed: r.Seal != nil,
		Principal: r.Principal, Method: r.Method, Path: r.Path, Key: r.Key,
	}, nil
}

// belongs binds a sealed answer to its row.
func (r Request) belongs() string {
	return "idem:" + r.Principal + "|" + r.Method + "|" + r.Path + "|" + r.Key
}

// Sweep removes keys whose time is over and returns how many.
func Sweep(ctx context.Context, d *db.DB) (int64, error) {
	return d.Q.DeleteExpiredIdempotencyKeys(ctx)
}
