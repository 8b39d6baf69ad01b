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

// queueImages queues the writes of which public images a host has. It ignores malformed entries: the list is only a
// hint.
func queueImages(b *pgx.Batch, host id.Host, images []agentapi.CachedImage) {
	refs, digests := []string{}, []string{}
	seen := map[string]bool{}
	for _, i := range images {
		switch {
		case len(refs) == agentapi.MaxImages, seen[i.Ref], i.Ref == "", len(i.Ref) > 512, len(i.Digest) > 100,
			!strings.HasPrefix(i.Digest, "sha256:"):
			continue
		}
		seen[i.Ref] = true
		refs, digests = append(refs, i.Ref), append(digests, i.Digest)
	}
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error { return q.ForgetHostImages(ctx, host, refs) })
	if len(refs) > 0 {
		db.Queue(b, func(ctx context.Context, q *dbq.Queries) error { return q.PutHostImages(ctx, host, refs, digests) })
	}
}
