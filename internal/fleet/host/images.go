package host

import (
	"context"
	"fmt"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// putImages stores which public images a host has. It ignores malformed entries: the list is only a hint.
func putImages(ctx context.Context, tx *db.Tx, host id.Host, images []agentapi.CachedImage) error {
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
	if err := tx.Q.ForgetHostImages(ctx, host, refs); err != nil {
		return fmt.Errorf("images of %s: %w", host, err)
	}
	if len(refs) == 0 {
		return nil
	}
	if err := tx.Q.PutHostImages(ctx, host, refs, digests); err != nil {
		return fmt.Errorf("images of %s: %w", host, err)
	}
	return nil
}
