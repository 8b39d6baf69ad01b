package host

import (
	"context"
	"fmt"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// RecordPulls takes note of what a report says the host has received of images; nil is nothing new. What it said before
// changes nothing. What uses up the host's data cap keeps new leases away from it.
func RecordPulls(ctx context.Context, tx *db.Tx, host id.Host, p *agentapi.Pulled) error {
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
