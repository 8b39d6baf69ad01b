package host

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// hostImages is which public images hosts have, to be stored.
type hostImages struct {
	hosts, of     []id.Host // of has the host of each image
	refs, digests []string
}

// add adds the images of a host. It ignores malformed entries: the list is only a hint.
func (w *hostImages) add(host id.Host, images []agentapi.CachedImage) {
	w.hosts = append(w.hosts, host)
	seen := map[string]bool{}
	for _, i := range images {
		switch {
		case len(seen) == agentapi.MaxImages, seen[i.Ref], i.Ref == "", len(i.Ref) > 512, len(i.Digest) > 100,
			!strings.HasPrefix(i.Digest, "sha256:"):
			continue
		}
		seen[i.Ref] = true
		w.of, w.refs, w.digests = append(w.of, host), append(w.refs, i.Ref), append(w.digests, i.Digest)
	}
}

// queue queues the writes.
func (w *hostImages) queue(b *pgx.Batch) {
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		return q.ForgetHostImages(ctx, id.UUIDs(w.hosts...), id.UUIDs(w.of...), w.refs)
	})
	if len(w.refs) > 0 {
		db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
			return q.PutHostImages(ctx, id.UUIDs(w.of...), w.refs, w.digests)
		})
	}
}
