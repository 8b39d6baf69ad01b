package market

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

const (
	cachedFor    = 15 * time.Second // lifetime of a cached result
	cachedImages = 1000             // largest number of cached results
)

// imageHosts caches for a short time which hosts have an image.
type imageHosts struct {
	mu    sync.Mutex
	known map[string]holders
}

type holders struct {
	hosts map[id.Host]bool
	at    time.Time
}

// Registry returns the name of the registry that an image is in; "" for a malformed reference.
func Registry(image string) string {
	ref, err := name.ParseReference(image)
	if err != nil {
		return ""
	}
	return ref.Context().RegistryStr()
}

// imageHolders returns the hosts that report having an image. The result is only a hint: it is nil for a malformed
// image name, and may be outdated or nil if the query fails.
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

// An image is popular if several organisations have rented it within a few days and several hosts have pulled it
// without credentials. So the name of an image that only one customer uses, or that needs a password, is never
// disclosed to hosts that do not run it.
const (
	popularImages  = 5
	popularWithin  = 7 * 24 * time.Hour
	popularOrgs    = 2
	popularHosts   = 2
	popularRents   = 20_000 // number of most recent clusters to examine
	popularForgets = 10 * time.Minute
)

// popular caches the popular images for a while.
type popular struct {
	mu   sync.Mutex
	refs []string
	at   time.Time
}

// Popular returns the full names of the public images that were rented most in recent days, most popular first, so that
// idle hosts may download them in advance. Results are cached for ten minutes.
func (m *Market) Popular(ctx context.Context) ([]string, error) {
	m.popular.mu.Lock()
	defer m.popular.mu.Unlock()
	if now := m.cfg.Now(); m.popular.at.IsZero() || now.Sub(m.popular.at) >= popularForgets {
		refs, err := m.findPopular(ctx)
		if err != nil {
			return nil, fmt.Errorf("popular images: %w", err)
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

// PopularFor returns popular public images, most popular first, that a host without leases may download in advance, and
// the limit of their total size in bytes; 0 means no limit. The result is empty for a host whose data cap is used up
// for such images, and for a host with a data cap whose agent cannot observe the limit.
func (m *Market) PopularFor(ctx context.Context, h id.Host, capabilities []string) ([]string, int64, error) {
	images, err := m.Popular(ctx)
	if err != nil || len(images) == 0 {
		return nil, 0, err
	}
	left, bounded, err := host.DataForPopular(ctx, m.db.Q, h)
	switch {
	case err != nil:
		return nil, 0, err
	case !bounded:
		return images, 0, nil
	case left > 0 && slices.Contains(capabilities, agentapi.CapPopularBound):
		return images, left, nil
	}
	return nil, 0, nil
}
