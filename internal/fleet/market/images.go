package market

import (
	"context"
	"fmt"
	"slices"
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

// An image is popular when several orgs have rented it within days and several hosts have pulled it without
// credentials: what is one customer's alone, or needs a password, is named to no host that does not run it.
const (
	popularImages  = 5
	popularWithin  = 7 * 24 * time.Hour
	popularOrgs    = 2
	popularHosts   = 2
	popularRents   = 20_000 // how many of the last clusters are looked at
	popularForgets = 10 * time.Minute
)

// popular remembers for a while which images are.
type popular struct {
	mu   sync.Mutex
	refs []string
	at   time.Time
}

// Popular are the public images that were rented most of late, by their names in full, the most popular first: hosts
// with nothing to do may fetch them ahead of time. An answer is used again for ten minutes.
func (m *Market) Popular(ctx context.Context) ([]string, error) {
	m.popular.mu.Lock()
	defer m.popular.mu.Unlock()
	if now := m.cfg.Now(); m.popular.at.IsZero() || now.Sub(m.popular.at) >= popularForgets {
		refs, err := m.findPopular(ctx)
		if err != nil {
			return nil, fmt.Errorf("market: popular images: %w", err)
		}
		m.popular.refs, m.popular.at = refs, now
	}
	return m.popular.refs, nil
}

func (m *Market) findPopular(ctx context.Context) ([]string, error) {
	rows, err := m.db.Q.RentedImages(ctx, popularRents, popularWithin.Seconds(), popularOrgs)
	if err != nil {
		return nil, err
	}
	var order []string
	for _, r := range rows {
		ref, err := name.ParseReference(r.ImageRef)
		if err != nil || slices.Contains(order, ref.Name()) {
			continue
		}
		order = append(order, ref.Name())
	}
	public, err := m.db.Q.PublicImages(ctx, order, popularHosts)
	if err != nil {
		return nil, err
	}
	order = slices.DeleteFunc(order, func(ref string) bool { return !slices.Contains(public, ref) })
	return order[:min(len(order), popularImages)], nil
}
