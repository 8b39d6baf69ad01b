package market

import (
	"context"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/musterhq/muster/internal/id"
)

const (
	cachedFor    = 15 * time.Second // how long an answer is used again
	cachedImages = 1000             // answers kept
)

// imageHosts remembers for a short while which hosts hold an image.
type imageHosts struct {
	mu    sync.Mutex
	known map[string]holders
}

type holders struct {
	hosts map[id.Host]bool
	at    time.Time
}

// imageHolders are the hosts that hold an image, as they said. It is a hint: an image that cannot be named, or a
// question that fails, has none.
func (m *Market) imageHolders(ctx context.Context, image string) map[id.Host]bool {
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil
	}
	full, now := ref.Name(), m.cfg.Now()
	m.images.mu.Lock()
	got, ok := m.images.known[full]
	m.images.mu.Unlock()
	if ok && now.Sub(got.at) < cachedFor {
		return got.hosts
	}
	ids, err := m.db.Q.HostsWithImage(ctx, full)
	if err != nil {
		return got.hosts
	}
	got = holders{make(map[id.Host]bool, len(ids)), now}
	for _, h := range ids {
		got.hosts[h] = true
	}
	m.images.mu.Lock()
	defer m.images.mu.Unlock()
	if len(m.images.known) >= cachedImages {
		clear(m.images.known)
	}
	m.images.known[full] = got
	return got.hosts
}
