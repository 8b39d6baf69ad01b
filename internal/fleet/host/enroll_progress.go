package host

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// Enrolling is how far a host has come with its one-time token.
type Enrolling struct {
	ExpiresAt time.Time
	Expired   bool       // and it was not used
	UsedAt    *time.Time // nil = not yet
	Host      *Detail    // who used it; nil = nobody yet
}

// EnrollmentProgress looks at a token's way to a host that sells. Fault: NotFound, for another org's too.
func EnrollmentProgress(ctx context.Context, q *dbq.Queries, org id.Org, e id.Enrollment) (Enrolling, error) {
	r, err := q.GetEnrollment(ctx, e, org)
	if db.NoRows(err) {
		return Enrolling{}, notFound()
	}
	if err != nil {
		return Enrolling{}, fmt.Errorf("host: read enrolment %s: %w", e, err)
	}
	p := Enrolling{ExpiresAt: r.ExpiresAt, Expired: r.Expired, UsedAt: r.UsedAt}
	if r.HostID.IsZero() {
		return p, nil
	}
	d, err := Get(ctx, q, org, r.HostID)
	if err != nil {
		return Enrolling{}, err
	}
	p.Host = &d
	return p, nil
}
