package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
)

// patience is how long a request waits for the other servers that share the state.
const patience = 30 * time.Second

// guard is the lock around the state. Where servers share it in a database, it is the lock of all of them, and the
// server that takes it first learns what the others changed. What is changed under it is kept by store.save, and else
// forgotten.
type guard struct {
	mu      sync.Mutex
	shelves map[string]anyShelf
	shared  *shared // nil: the state is this server's alone
}

// shared is the state's place in the database.
type shared struct {
	db      *db.DB
	shelves map[string]anyShelf
	seen    int64 // every change up to this version is known here
	learnt  func()

	tx     pgx.Tx // nil: not under the lock, or saved
	cancel context.CancelFunc
}

// unavailable is the panic of a server that cannot reach its state: it must not go on as if it could. Callers
// get the answer of a Stripe that is down; see ServeHTTP.
type unavailable struct{ error }

func (g *guard) Lock() {
	g.mu.Lock()
	if g.shared == nil {
		return
	}
	if err := g.shared.begin(); err != nil {
		g.shared.forget()
		g.mu.Unlock()
		panic(unavailable{err})
	}
}

func (g *guard) Unlock() {
	if g.shared != nil {
		g.shared.end()
	}
	for _, k := range g.shelves {
		k.settle()
	}
	g.mu.Unlock()
}

func (h *shared) begin() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	h.cancel = cancel
	if h.tx, err = h.db.Pool.Begin(ctx); err != nil {
		return err
	}
	q := dbq.New(h.tx)
	if err := q.LockSandbox(ctx); err != nil {
		return err
	}
	changes, err := h.changes(ctx, q)
	if err != nil || len(changes) == 0 {
		return err
	}
	for _, c := range changes {
		if k := h.shelves[c.Kind]; k != nil { // another version may keep more kinds
			if err := k.learn(c.ID, c.Body); err != nil {
				return fmt.Errorf("the sandbox's Stripe cannot read its %s %s, which another version may have written: %w", c.Kind,
					c.ID, err)
			}
		}
		h.seen = max(h.seen, c.Version)
	}
	h.learnt()
	return nil
}

// changes are what others changed, in the order in which the objects were made.
func (h *shared) changes(ctx context.Context, q *dbq.Queries) (all []dbq.SandboxChangesRow, err error) {
	const page = 1000
	for seen := h.seen; ; {
		some, err := q.SandboxChanges(ctx, seen, page)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if len(some) < page {
			slices.SortFunc(all, func(a, b dbq.SandboxChangesRow) int { return cmp.Compare(a.Made, b.Made) })
			return all, nil
		}
		seen = some[page-1].Version
	}
}

func (h *shared) commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var kinds, ids, bodies []string
	for kind, k := range h.shelves {
		for _, id := range k.changed() {
			body, err := k.body(id)
			if err != nil {
				return err
			}
			kinds, ids, bodies = append(kinds, kind), append(ids, id), append(bodies, body)
		}
	}
	if len(ids) > 0 {
		v, err := dbq.New(h.tx).PutSandboxObjects(ctx, kinds, ids, bodies)
		if err != nil {
			return err
		}
		h.seen = v
	}
	err := h.tx.Commit(ctx)
	h.end()
	return err
}

// end gives the lock back, with whatever was not committed.
func (h *shared) end() {
	if h.tx != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = h.tx.Rollback(ctx) // a connection that broke gave the lock back by that
		h.tx = nil
	}
	if h.cancel != nil {
		h.cancel()
		h.cancel = nil
	}
}

// forget makes the next holder of the lock read everything again: what is in memory may not be what was kept.
func (h *shared) forget() {
	h.end()
	for _, k := range h.shelves {
		k.clear()
	}
	h.seen = 0
}

// anyShelf is a shelf of whatever kind.
type anyShelf interface {
	learn(id string, body *string) error // nil: it is gone
	changed() []string                   // since settle, in order
	body(id string) (string, error)      // "": it is gone
	settle()
	clear()
	size() int
	touchAll()
}

// shelves are the parts of the state by the names they are kept under.
func (s *state) shelves() map[string]anyShelf {
	out := map[string]anyShelf{}
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		out[name] = v.Field(i).Addr().Interface().(anyShelf) // a test holds every field to it
	}
	return out
}

// reached answers in the place of a handler that could not reach the state.
func reached(w http.ResponseWriter) {
	switch e := recover().(type) {
	case nil:
	case unavailable:
		apiError{
			Status:  503,
			Type:    "api_error",
			Message: "the sandbox's Stripe cannot reach its state: " + e.Error(),
		}.answer().write(w)
	default:
		panic(e)
	}
}

// try runs f and reports whether the state could be reached.
func try(f func()) (err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case unavailable:
			err = e
		default:
			panic(e)
		}
	}()
	f()
	return nil
}
