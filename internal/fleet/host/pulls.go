package host

import (
	"context"
	"fmt"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// recordPulls records how many bytes of images the host has received; nil means nothing new. What was reported before
// changes nothing. A host whose data cap is used up gets no new leases.
func recordPulls(ctx context.Context, tx *db.Tx, host id.Host, p *agentapi.Pulled) error {
	if p == nil {
		return nil
	}
	// A name that PostgreSQL cannot hold must not keep the report from being taken.
	counter := strings.ReplaceAll(p.Counter, "\x00", "")
	n, err := tx.Q.PutHostPulls(ctx, host, counter, p.Bytes)
	if err != nil {
		return fmt.Errorf("host: pulls of %s: %w", host, err)
	}
	if n == 0 {
		return nil
	}
	return updateDataCap(ctx, tx, host)
}
