package metering

import "github.com/musterhq/muster/internal/db"

// Leases are the use cases of metered leases, for the API, the pages and the command line. Safe for concurrent use.
type Leases struct{ d *db.DB }

// NewLeases returns the use cases on d.
func NewLeases(d *db.DB) *Leases { return &Leases{d} }
