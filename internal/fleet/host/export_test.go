package host

import (
	"context"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// RecordReportAlone is RecordReport of a report that is not stored together with others.
func (a *Agents) RecordReportAlone(ctx context.Context, host id.Host, s agentapi.Sync) (Report, error) {
	return a.recordAlone(ctx, host, s)
}
