package gateway

import (
	"net/http"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/account"
)

// holders caches whether the holders of passes to apps still have access. A pass becomes invalid with the token that
// created it and with its user's membership; without a cache, each request would query that, and a page of an app may
// make a hundred requests a second.
type holders struct {
	mu      sync.Mutex
	answers map[account.Credential]answer
}

type answer struct {
	in bool
	at time.Time
}

const (
	checkEvery = 30 * time.Second // how long a revoked token may still open apps
	maxHolders = 10_000
)

// stillIn reports whether the pass is still valid, and writes the error response if it is not.
func (p *Apps) stillIn(w http.ResponseWriter, r *http.Request, v pass) bool {
	if p.cfg.StillIn == nil {
		return true
	}
	who, now := account.Credential{
		Org: v.Org, User: v.User, Token: v.Token, Session: v.Session, Scope: account.ScopeClusters,
	}, p.cfg.Now()
	p.holders.mu.Lock()
	known, ok := p.holders.answers[who]
	p.holders.mu.Unlock()
	if !ok || now.Sub(known.at) >= checkEvery {
		in, err := p.cfg.StillIn(r.Context(), who)
		if err != nil {
			if r.Context().Err() == nil {
				p.cfg.Log.Error("a pass to an app cannot be checked", "err", err)
			}
			p.respond(w, http.StatusInternalServerError, "Something went wrong on our side.")
			return false
		}
		known = answer{in, now}
		p.holders.mu.Lock()
		if len(p.holders.answers) >= maxHolders {
			clear(p.holders.answers)
		}
		p.holders.answers[who] = known
		p.holders.mu.Unlock()
	}
	if !known.in {
		p.respond(w, http.StatusForbidden, "What this app was opened with no longer counts: the token was revoked or has "+
			"expired, you have signed out, or you have left the organisation. Open it again from its cluster's page.")
	}
	return known.in
}
