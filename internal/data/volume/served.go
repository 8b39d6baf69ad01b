package volume

import (
	"context"
	"fmt"
	"sync"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// serveBytes counts bytes that an organisation's people or hosts may now read from the store, and refuses them over its
// limits. A signed request counts as the whole pack.
func (l *limiter) serveBytes(ctx context.Context, org id.Org, bytes int64, byHost bool) error {
	people, hosts := bytes, int64(0)
	if byHost {
		people, hosts = 0, bytes
	}
	return l.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := tx.Q.AddServed(ctx, org, people, hosts); err != nil {
			return fmt.Errorf("count what %s reads: %w", org, err)
		}
		s, err := l.standing(ctx, tx.Q, org)
		if err != nil {
			return err
		}
		return l.limits.read(s, byHost)
	})
}

// fileReads adds up what the server itself reads to show files, so that not every chunk is a write to the database.
type fileReads struct {
	mu sync.Mutex
	by map[id.Org]int64
}

// fileReadsStep is how many bytes are counted together.
const fileReadsStep = 4 << 20

// serveFiles counts bytes that the server reads to show files of an organisation. With 0 bytes, a request begins.
// Fault: QuotaExceeded.
func (l *limiter) serveFiles(ctx context.Context, org id.Org, bytes int64) error {
	l.files.mu.Lock()
	if l.files.by == nil {
		l.files.by = map[id.Org]int64{}
	}
	sum := l.files.by[org] + bytes
	due := bytes == 0 || sum >= fileReadsStep
	if l.files.by[org] = sum; due {
		delete(l.files.by, org)
	}
	l.files.mu.Unlock()
	if !due {
		return nil
	}
	return forPeople(l.serveBytes(ctx, org, sum, false))
}
