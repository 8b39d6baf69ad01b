package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/workload/image"
)

// images are the images on the host: which ones the inventory has, how many bytes were received, and which are fetched
// ahead of time or removed.
type images struct {
	puller    *image.Puller
	received  func() int64 // bytes of images received since this process began; nil: not counted
	runs      *runs
	disk      disk
	now       func() time.Time
	log       *slog.Logger
	inventory chan struct{} // the inventory must be sent
	fetch     chan struct{} // there may be popular images to fetch

	mu       sync.Mutex        // guards what follows
	reported map[string]string // public images on the host, name to digest, as last reported
	popular  []string          // from the server's last answer
	bound    popularBound
	pulls    pulls
}

func newImages(cfg Config, rs *runs, inventory chan struct{}) (*images, error) {
	m := &images{puller: cfg.Images, received: cfg.Received, runs: rs, disk: rs.disk, now: cfg.Now, log: cfg.Log,
		inventory: inventory, fetch: make(chan struct{}, 1)}
	var err error
	if m.pulls, err = m.openPulls(); err != nil {
		return nil, fmt.Errorf("open the pulls: %w", err)
	}
	return m, nil
}

const (
	cleanEvery  = time.Hour
	keepImages  = 3 * 24 * time.Hour
	minFreeDisk = 20 << 30
)

// clean removes images that nothing needs.
func (m *images) clean(ctx context.Context) {
	for pause(ctx, cleanEvery, nil) {
		m.runs.mu.Lock()
		var inUse []string
		for r := range m.runs.all() {
			if r.rec.ImageDigest != "" && !r.rec.Gone {
				inUse = append(inUse, r.rec.ImageDigest)
			}
		}
		m.runs.mu.Unlock()
		if _, err := m.puller.GC(ctx, inUse, keepImages, minFreeDisk); err != nil && ctx.Err() == nil {
			m.log.Warn("images could not be cleaned up", "err", err)
		}
		m.report()
	}
}

// report sends the inventory if the images that it names have changed.
func (m *images) report() {
	names := map[string]string{}
	for _, i := range m.puller.Cached() {
		names[i.Ref] = i.Digest
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !maps.Equal(names, m.reported) {
		m.reported = names
		poke(m.inventory)
	}
}
