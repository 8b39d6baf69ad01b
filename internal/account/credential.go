package account

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// Credential is what a user signed in with: a token, a session or an SSH key. One with none of them stands for the
// user's membership of the org alone.
type Credential struct {
	Org     id.Org
	User    id.User
	Token   id.Token
	Session id.Session
	Key     string // fingerprint of an SSH key of the org, "" for none
	Scope   string // that the user's role must include; "" for none
}

// Credential is what the principal was let in with, for something that requires one of the scopes; none: any member may
// have it.
func (p Principal) Credential(scopes ...string) Credential {
	c := Credential{Org: p.Org, User: p.User, Token: p.Token, Session: p.Session}
	if len(scopes) > 0 && !slices.Contains(scopes, ScopeRead) && !slices.Contains(scopes, ScopeAdmin) {
		c.Scope = scopes[0] // every role can read
	}
	return c
}

// Credentials checks that what users signed in with still counts.
type Credentials struct {
	*core
	watch watch
}

// StillIn reports whether a credential still counts: its user is a member of the org with a role that includes the
// scope, and the token, session or key is neither revoked nor expired; a session also ends when nothing was requested
// with it for Config.SessionIdle.
func (cr *Credentials) StillIn(ctx context.Context, c Credential) (bool, error) {
	token, err := c.Token.UUIDValue()
	if err != nil {
		return false, err
	}
	session, err := c.Session.UUIDValue()
	if err != nil {
		return false, err
	}
	in, err := cr.db.Q.StillIn(ctx, dbq.StillInParams{
		UserID:    c.User,
		OrgID:     c.Org,
		TokenID:   token,
		SessionID: session,
		Key:       c.Key,
		Idle:      cr.cfg.SessionIdle.Seconds(),
	})
	if db.NoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("check the credential of %s: %w", c.User, err)
	}
	return in.Valid && (c.Scope == "" || Role(in.Role).Can(c.Scope)), nil
}

// WhileIn returns a context that ends when ctx does, or within Config.RecheckEvery and one query after the credential
// stopped counting. It is for answers that go on for longer than a request: streams, shells, WebSockets. Any number of
// streams with one credential share one query. Call cancel when the stream has ended.
//
// While the database cannot be asked streams go on: an outage does not close every shell of the platform.
func (cr *Credentials) WhileIn(ctx context.Context, c Credential) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	leave := cr.watch.enter(c, cr, cancel)
	return ctx, sync.OnceFunc(func() { leave(); cancel() })
}

// watch asks again and again about the credentials of open streams.
type watch struct {
	mu   sync.Mutex
	open map[Credential]*watched
}

type watched struct {
	streams map[int]context.CancelFunc
	next    int
	stop    context.CancelFunc // of its loop
}

// enter adds a stream, which end closes, and returns how it leaves.
func (w *watch) enter(c Credential, cr *Credentials, end context.CancelFunc) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.open[c]
	if x == nil {
		loop, stop := context.WithCancel(context.Background())
		x = &watched{streams: map[int]context.CancelFunc{}, stop: stop}
		if w.open == nil {
			w.open = map[Credential]*watched{}
		}
		w.open[c] = x
		go w.loop(loop, c, x, cr)
	}
	n := x.next
	x.next++
	x.streams[n] = end
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(x.streams, n)
		if len(x.streams) == 0 && w.open[c] == x {
			x.stop()
			delete(w.open, c)
		}
	}
}

func (w *watch) loop(ctx context.Context, c Credential, x *watched, cr *Credentials) {
	tick := time.NewTicker(cr.cfg.RecheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asking, cancel := context.WithTimeout(ctx, 10*time.Second)
		in, err := cr.StillIn(asking, c)
		cancel()
		if err != nil || in {
			continue
		}
		w.mu.Lock()
		for _, end := range x.streams {
			end()
		}
		if w.open[c] == x {
			delete(w.open, c)
		}
		w.mu.Unlock()
		x.stop()
		return
	}
}
