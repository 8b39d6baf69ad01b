package clusters

import (
	"context"
	"sync"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
)

// maxStreams is how many live pages and followed logs one user may have open on one replica, because each polls the
// database.
const maxStreams = 40

// streams counts the open streams of each user.
type streams struct {
	mu   sync.Mutex
	open map[id.User]int
}

func (s *streams) enter(user id.User) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[user] >= maxStreams {
		return nil, false
	}
	if s.open == nil {
		s.open = map[id.User]int{}
	}
	s.open[user]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open[user]--; s.open[user] == 0 {
			delete(s.open, user)
		}
	}, true
}

// openStream begins a page's stream. The context ends when the visitor leaves, and soon after the visitor signs out or
// leaves the organisation. Fault: RateLimited.
func (s *Pages) openStream(v *page.Visit) (ctx context.Context, leave func(), err error) {
	out, ok := s.streams.enter(v.Who.User)
	if !ok {
		return nil, nil, fault.New(fault.RateLimited, "you have too many live pages open: close some and load this one again")
	}
	ctx, cancel := s.Accounts.Credentials.WhileIn(v.R.Context(), v.Who.Credential())
	return ctx, func() { cancel(); out() }, nil
}
